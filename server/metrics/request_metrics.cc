#include "server/metrics/request_metrics.h"

#include <string>

#include "server/wire/error_details.h"

namespace moed {
namespace {

using prometheus::Histogram;

constexpr std::array<std::string_view, kMethods> kMethodNames = {
    "Generate", "GenerateStream", "Chat", "ChatStream", "CountTokens", "Score", "Tokenize", "Detokenize", "DeleteSession"};
constexpr std::array<std::string_view, kEndReasons> kEndReasonNames = {
    "stop", "stop_string", "length", "time_limit", "context", "cancelled", "deadline", "slow_client", "error"};
constexpr std::array<std::string_view, kRejections> kRejectionNames = {"queue_full", "tenant_limit", "too_large", "not_ready",
                                                                       "draining"};

const Histogram::BucketBoundaries& FirstTokenBounds() {
  static const Histogram::BucketBoundaries bounds = {.001, .005, .01, .02, .04, .06, .08, .1,  .25,  .5,
                                                     .75,  1,    2.5, 5,   7.5, 10,  15,  20,  30,   40,
                                                     60,   80,   120, 160, 240, 320, 480, 640, 1280, 2560};
  return bounds;
}
const Histogram::BucketBoundaries& TokenBounds() {
  static const Histogram::BucketBoundaries bounds = {.0001, .00025, .0005, .001, .0025, .005, .0075, .01, .025, .05, .075,
                                                     .1,    .15,    .2,    .3,   .4,    .5,   .75,   1,   1.25, 1.5, 2,
                                                     2.5,   3,      4,     5,    7.5,   10,   20,    40,  80};
  return bounds;
}
const Histogram::BucketBoundaries& RequestBounds() {
  static const Histogram::BucketBoundaries bounds = {.001, .005, .01, .05, .1, .3, .5, .8,  1,   1.5, 2,   2.5,  5,
                                                     10,   15,   20,  30,  40, 50, 60, 120, 240, 480, 960, 1920, 7680};
  return bounds;
}

Histogram* MakeHistogram(prometheus::Registry& registry, const char* name, const char* help,
                         const Histogram::BucketBoundaries& bounds) {
  return &prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, bounds);
}

}  // namespace

std::string_view MethodName(Method method) { return kMethodNames[static_cast<size_t>(method)]; }
std::string_view EndReasonName(EndReason reason) { return kEndReasonNames[static_cast<size_t>(reason)]; }

EndReason EndReasonOf(const FinishInfo& finish) {
  if (finish.status.ok()) {
    static constexpr EndReason kReasons[] = {EndReason::kStop, EndReason::kStopString, EndReason::kLength, EndReason::kTimeLimit,
                                             EndReason::kContext};
    return kReasons[static_cast<size_t>(finish.reason)];
  }
  if (absl::IsDeadlineExceeded(finish.status)) return EndReason::kDeadline;
  return absl::IsCancelled(finish.status) ? EndReason::kCancelled : EndReason::kError;
}

RequestMetrics::RequestMetrics(prometheus::Registry& registry) {
  auto& ended =
      prometheus::BuildCounter().Name("moe_requests_total").Help("Calls of the Inference service that ended.").Register(registry);
  for (int m = 0; m < kMethods; ++m) {
    for (int code = 0; code < kCodes; ++code) {
      ended_[m][code] = &ended.Add(
          {{"method", std::string(kMethodNames[m])}, {"code", std::string(CodeName(static_cast<absl::StatusCode>(code)))}});
    }
  }
  auto& finished = prometheus::BuildCounter()
                       .Name("moe_requests_finished_total")
                       .Help("Admitted generations that ended, by how.")
                       .Register(registry);
  for (int i = 0; i < kEndReasons; ++i) finished_[i] = &finished.Add({{"reason", std::string(kEndReasonNames[i])}});
  auto& rejected =
      prometheus::BuildCounter().Name("moe_requests_rejected_total").Help("Calls that were not admitted.").Register(registry);
  for (int i = 0; i < kRejections; ++i) rejected_[i] = &rejected.Add({{"reason", std::string(kRejectionNames[i])}});

  time_to_first_token_ = MakeHistogram(registry, "moe_time_to_first_token_seconds",
                                       "From arrival, before tokenisation, to the first token.", FirstTokenBounds());
  time_per_output_token_ =
      MakeHistogram(registry, "moe_time_per_output_token_seconds",
                    "(duration - time to first token) / (tokens - 1), of generations with two tokens or more.", TokenBounds());
  inter_token_ =
      MakeHistogram(registry, "moe_inter_token_latency_seconds", "Between consecutive tokens of a generation.", TokenBounds());
  duration_ = MakeHistogram(registry, "moe_request_duration_seconds", "Generations from arrival to end.", RequestBounds());
  queue_ =
      MakeHistogram(registry, "moe_request_queue_seconds", "Generations from arrival to the start of prefill.", RequestBounds());
  prefill_ = MakeHistogram(registry, "moe_request_prefill_seconds", "Prefill of generations.", RequestBounds());
  decode_ = MakeHistogram(registry, "moe_request_decode_seconds", "Decode of generations.", RequestBounds());
  cancel_to_idle_ = MakeHistogram(registry, "moe_cancel_to_idle_seconds", "From a cancellation to the end of the work for it.",
                                  RequestBounds());
}

void RequestMetrics::CountEnd(Method method, absl::StatusCode code) {
  const auto index = static_cast<size_t>(code);
  ended_[static_cast<size_t>(method)][index < kCodes ? index : static_cast<size_t>(absl::StatusCode::kUnknown)]->Increment();
  absl::MutexLock lock(&mutex_);
  ++totals_.requests;
}

void RequestMetrics::CountRejected(Rejection rejection) { rejected_[static_cast<size_t>(rejection)]->Increment(); }

void RequestMetrics::ObserveFinish(EndReason reason, const FinishInfo& finish) {
  finished_[static_cast<size_t>(reason)]->Increment();
  const RequestTimings& timings = finish.timings;
  duration_->Observe(timings.duration_seconds);
  queue_->Observe(timings.queue_seconds);
  if (finish.completion_tokens < 1) return;  // no first token: nothing below is known
  time_to_first_token_->Observe(timings.ttft_seconds);
  prefill_->Observe(timings.prefill_seconds);
  decode_->Observe(timings.decode_seconds);
  if (finish.completion_tokens < 2) return;
  time_per_output_token_->Observe(timings.tpot_seconds);
  absl::MutexLock lock(&mutex_);
  totals_.tpot_sum_seconds += timings.tpot_seconds;
  ++totals_.tpot_count;
}

RequestMetrics::Totals RequestMetrics::totals() const {
  absl::MutexLock lock(&mutex_);
  return totals_;
}

}  // namespace moed
