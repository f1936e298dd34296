#include "server/http/expert_watch.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/alarm.h"
#include "server/http/api/passed_headers.h"
#include "server/http/openai/reply.h"

namespace moed::http {
namespace {

using SystemClock = std::chrono::system_clock;

constexpr auto kPause = std::chrono::milliseconds(250);  // between two events
constexpr int kPausesOfWork = 4;                         // or so many times what the last one took
constexpr auto kDeadline = std::chrono::seconds(10);     // of a call

Json TotalsJson(const moe::v1::Stats& stats) {
  return {{"window_seconds", stats.window_seconds()},
          {"hit_ratio", stats.hit_ratio()},
          {"read_bytes_per_second", stats.read_bytes_per_second()},
          {"tokens_per_second", stats.tokens_per_second()},
          {"mean_tpot_seconds", stats.mean_tpot_seconds()},
          {"running", stats.running()},
          {"waiting", stats.waiting()},
          {"expert_hits", stats.expert_hits()},
          {"expert_misses", stats.expert_misses()},
          {"cache_bytes", stats.cache_bytes()},
          {"cache_capacity_bytes", stats.cache_capacity_bytes()},
          {"device_bytes", stats.device().bytes()},
          {"device_capacity_bytes", stats.device().capacity_bytes()},
          {"memory_budget_bytes", stats.memory_budget_bytes()}};
}

// By hand: there are tens of thousands of experts.
std::string LayerText(const moe::v1::LayerExperts& layer) {
  std::string text = absl::StrCat("{\"layer\":", layer.layer(), ",\"experts\":[");
  for (int i = 0; i < layer.expert_size(); ++i) {
    absl::StrAppend(&text, i > 0 ? ",[" : "[", layer.expert(i), ",", layer.resident(i), ",", layer.hits(i), ",", layer.misses(i));
    absl::StrAppend(&text, ",", layer.lowered(i), ",", layer.skipped(i), ",", layer.reads(i), ",", layer.on_device(i), "]");
  }
  return text + "]}";
}

// `whole`: of all experts, not of those that changed.
std::string EventText(const moe::v1::ExpertMap& map, bool whole, const moe::v1::Stats& stats) {
  std::string text =
      absl::StrCat("data: {\"whole\":", whole ? "true" : "false", ",\"experts\":", map.experts(),
                   ",\"formats\":", Dumped(Json(map.formats())), ",\"totals\":", Dumped(TotalsJson(stats)), ",\"layers\":[");
  for (int i = 0; i < map.layers_size(); ++i) absl::StrAppend(&text, i > 0 ? "," : "", LayerText(map.layers(i)));
  return text + "]}\n\n";
}

// One who listens: asks for the map, then for the totals, tells both, pauses. One step at a time; alive while there is a next
// one.
class Watch final : public std::enable_shared_from_this<Watch> {
 public:
  Watch(Daemon& daemon, const std::atomic<bool>& ending, std::shared_ptr<Exchange> exchange)
      : counted_(daemon.calls()),
        daemon_(daemon),
        ending_(ending),
        exchange_(std::move(exchange)),
        token_(exchange_->request().token) {}

  void Begin() {
    exchange_->OnGone([weak = weak_from_this()] {
      if (const auto watch = weak.lock()) watch->gone_ = true;
    });
    AskForMap();
  }

 private:
  void AskForMap() {
    if (gone_) return;
    if (ending_) return exchange_->EndStream("");
    asked_ = SystemClock::now();
    const auto done = [self = shared_from_this()](const grpc::Status& status, const moe::v1::ExpertMap& map) {
      const bool others_ask = self->begun_ && status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
      if (others_ask) return self->Pause();
      if (!status.ok()) return self->Fail(status);
      self->map_ = map;
      self->since_ = map.now();
      self->AskForTotals();
    };
    moe::v1::GetExpertMapRequest request;
    request.set_since(since_);
    std::make_shared<UnaryCall<moe::v1::ExpertMap>>(daemon_.calls())
        ->Start(done, [&](grpc::ClientContext* context, moe::v1::ExpertMap* map, auto* call) {
          context->set_deadline(asked_ + kDeadline);
          PresentToken(token_, *context);
          daemon_.control().async()->GetExpertMap(context, &request, map, call);
        });
  }

  void AskForTotals() {
    const auto done = [self = shared_from_this()](const grpc::Status& status, const moe::v1::Stats& stats) {
      status.ok() ? self->Tell(stats) : self->Fail(status);
    };
    const moe::v1::GetStatsRequest request;
    std::make_shared<UnaryCall<moe::v1::Stats>>(daemon_.calls())
        ->Start(done, [&](grpc::ClientContext* context, moe::v1::Stats* stats, auto* call) {
          context->set_deadline(asked_ + kDeadline);
          PresentToken(token_, *context);
          daemon_.control().async()->GetStats(context, &request, stats, call);
        });
  }

  void Tell(const moe::v1::Stats& stats) {
    if (gone_) return;
    if (!begun_) exchange_->StartStream(kEventStream);
    std::string event = EventText(map_, !std::exchange(begun_, true), stats);
    map_ = {};  // clear() would keep its memory
    exchange_->Write(std::move(event), [self = shared_from_this()] { self->Pause(); });
  }

  void Pause() {
    if (gone_) return;
    const auto now = SystemClock::now();
    const auto pause = std::max<SystemClock::duration>(kPause, kPausesOfWork * (now - asked_));
    pause_ = std::make_unique<grpc::Alarm>();  // a new one each time: it may not be set by its own callback
    // The alarm keeps its callback: what that holds is taken out.
    pause_->Set(now + pause, [self = shared_from_this()](bool) mutable { std::exchange(self, nullptr)->AskForMap(); });
  }

  void Fail(const grpc::Status& status) {
    const ApiError error = ErrorOf(status, {});
    begun_ ? exchange_->EndStream(Event(OpenAiErrorJson(error))) : exchange_->Reply(OpenAiError(error));
  }

  const CountedCall counted_;  // the pauses too; ends after what else it holds
  Daemon& daemon_;
  const std::atomic<bool>& ending_;
  const std::shared_ptr<Exchange> exchange_;
  const std::string token_;
  std::atomic<bool> gone_{false};
  bool begun_ = false;
  SystemClock::time_point asked_;
  moe::v1::ExpertMap map_;  // until it is told
  uint64_t since_ = 0;      // of the last one
  std::unique_ptr<grpc::Alarm> pause_;
};

}  // namespace

void ExpertWatches::Begin(const std::shared_ptr<Exchange>& exchange) {
  std::make_shared<Watch>(daemon_, ending_, exchange)->Begin();
}

}  // namespace moed::http
