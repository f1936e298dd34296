#include "tests/engine/scripted_engine.h"

#include <algorithm>
#include <random>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/engine/request_check.h"

namespace moed {
namespace {

constexpr int kKeptSessions = 64;
constexpr absl::Duration kIdleTurn = absl::Seconds(1);

bool ContinuesCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

}  // namespace

Script ScriptOfText(std::string_view text) {
  Script script;
  for (char byte : text) {
    if (!ContinuesCharacter(byte) || script.deltas.empty()) {
      script.deltas.push_back({"", {TokenInfo{TokenId(static_cast<int32_t>(script.deltas.size()))}}});
    }
    script.deltas.back().text += byte;
  }
  return script;
}

ScriptedEngine::ScriptedEngine(const EngineLimits& limits, const Clock& clock, ScriptFor script_for)
    : limits_(limits),
      clock_(clock),
      script_for_(std::move(script_for)),
      intake_(limits.max_running, limits.max_running + limits.queue_capacity, kKeptSessions) {}

ScriptedEngine::~ScriptedEngine() { Stop(absl::UnavailableError("the engine has stopped")); }

absl::StatusOr<RequestId> ScriptedEngine::Submit(EngineRequest request, std::shared_ptr<RequestObserver> observer) {
  MOED_RETURN_IF_ERROR(CheckRequest(request, limits_));
  if (request.arrival_nanos == 0) request.arrival_nanos = clock_.NowNanos();
  return intake_.Submit(request, limits_, [&](RequestId id, std::unique_ptr<Sequence>& sequence) {
    auto live = std::make_unique<LiveRequest>();
    live->id = id;
    live->seed = request.sampling.seed ? *request.sampling.seed : std::random_device()();
    live->cached_tokens = sequence->begun_with();
    live->prompt_tokens = static_cast<int>(sequence->tokens.size());
    live->sequence = std::move(sequence);
    live->request = std::move(request);
    live->observer = std::move(observer);
    return live;
  });
}

bool ScriptedEngine::Step() {
  MOED_CHECK(!thread_.joinable());  // two threads that step would tread on each other
  return Turn();
}

bool ScriptedEngine::Turn() {
  Receive();
  EndCancelledAndOverdue();
  size_t running = 0;
  for (size_t i = 0; i < plays_.size() && running < static_cast<size_t>(limits_.max_running);) {
    ++running;
    std::optional<FinishInfo> finish = Advance(plays_[i]);
    if (finish) {
      Finish(i, *std::move(finish));
    } else {
      ++i;
    }
  }
  TellRunning();
  absl::MutexLock lock(&stats_mutex_);
  ++stats_.steps;
  stats_.heartbeat_nanos = clock_.NowNanos();
  return !plays_.empty();
}

void ScriptedEngine::Receive() {
  for (const auto& task : intake_.TakeTasks()) task();
  std::vector<std::unique_ptr<LiveRequest>> requests;
  intake_.Receive(requests, cancellations_);
  intake_.TakeDeleted();
  for (auto& live : requests) {
    Script script = script_for_(live->request);
    plays_.push_back({std::move(live), std::move(script)});
  }
}

void ScriptedEngine::EndCancelledAndOverdue() {
  const auto cancelled = std::exchange(cancellations_, {});
  for (size_t i = plays_.size(); i-- > 0;) {
    FinishInfo finish = plays_[i].script.finish;
    if (auto found = cancelled.find(plays_[i].live->id); found != cancelled.end()) {
      finish.status = found->second;
      Finish(i, std::move(finish));
    } else if (plays_[i].live->Overdue(clock_.NowNanos())) {
      finish.status = absl::OkStatus();
      finish.reason = FinishReason::kTimeLimit;
      Finish(i, std::move(finish));
    }
  }
}

std::optional<FinishInfo> ScriptedEngine::Advance(Play& play) {
  LiveRequest& live = *play.live;
  Script& script = play.script;
  if (script.queue_steps-- > 0) return std::nullopt;
  if (!live.started) {
    live.started = live.running = true;
    live.started_nanos = clock_.NowNanos();
    {
      absl::MutexLock lock(&stats_mutex_);
      ++stats_.running;
      stats_.prompt_tokens += live.prompt_tokens;
      stats_.cached_tokens += live.cached_tokens;
    }
    live.observer->OnStarted(live.prompt_tokens, live.cached_tokens);
    return std::nullopt;
  }
  if (script.prefill_steps-- > 0) return std::nullopt;
  if (play.next_delta < script.deltas.size()) {
    if (play.completion_tokens == 0) live.first_token_nanos = clock_.NowNanos();
    TokenDelta& delta = script.deltas[play.next_delta++];
    play.completion_tokens += static_cast<int>(delta.tokens.size());
    for (const TokenInfo& info : delta.tokens) live.sequence->tokens.push_back(info.token);
    live.observer->OnTokens(std::move(delta));
    if (play.completion_tokens >= limits_.MostNewTokens(live.request.stopping.max_new_tokens, live.prompt_tokens)) {
      FinishInfo finish = script.finish;
      if (play.next_delta < script.deltas.size()) finish.reason = FinishReason::kLength;
      return finish;
    }
  }
  if (play.next_delta < script.deltas.size()) return std::nullopt;
  return script.finish;
}

void ScriptedEngine::Finish(size_t index, FinishInfo finish) {
  const Play play = std::move(plays_[index]);
  plays_.erase(plays_.begin() + index);
  const LiveRequest& live = *play.live;
  finish.prompt_tokens = live.prompt_tokens;
  finish.cached_tokens = live.cached_tokens;
  finish.completion_tokens = play.completion_tokens;
  finish.seed = live.seed;
  finish.timings = TimingsOf(live, play.completion_tokens, clock_.NowNanos());
  std::unique_ptr<Sequence> kept = std::move(play.live->sequence);
  finish.status.ok() ? kept->Keep() : kept->TakeBack();
  kept->used_nanos = clock_.NowNanos();
  if (finish.status.ok() && !kept->session.empty()) finish.session_tokens = static_cast<int>(kept->tokens.size());
  if (kept->session.empty() || kept->tokens.empty()) kept = nullptr;
  intake_.CountGenerated(live.owner, play.completion_tokens);
  intake_.Release(live, std::move(kept));
  TellRunning();
  {
    absl::MutexLock lock(&stats_mutex_);
    stats_.running -= live.running ? 1 : 0;
    stats_.generated_tokens += play.completion_tokens;
  }
  live.observer->OnFinish(finish);
  intake_.Finished();
}

void ScriptedEngine::TellRunning() {
  std::vector<CountsByPriority> by_owner;
  for (const Play& play : plays_) {
    if (by_owner.size() <= play.live->owner) by_owner.resize(play.live->owner + 1);
    by_owner[play.live->owner][static_cast<size_t>(play.live->request.priority)] += play.live->running ? 1 : 0;
  }
  intake_.SetRunning(by_owner);
}

QueueEstimate ScriptedEngine::EstimateQueue(const std::string& tenant, Priority priority, int) const {
  const Intake::Standing standing = intake_.StandingOf(tenant, priority);
  absl::MutexLock lock(&stats_mutex_);
  QueueEstimate estimate{.position = standing.position, .prefill_seconds = prefill_seconds_};
  if (seconds_per_end_) estimate.wait_seconds = standing.waits ? (standing.position + 1) * *seconds_per_end_ : 0;
  return estimate;
}

void ScriptedEngine::Measure(double seconds_per_end, double prefill_seconds) {
  absl::MutexLock lock(&stats_mutex_);
  seconds_per_end_ = seconds_per_end;
  prefill_seconds_ = prefill_seconds;
}

void ScriptedEngine::RunFreely(double steps_per_second) {
  MOED_CHECK(!thread_.joinable() && steps_per_second > 0);
  thread_ = std::thread([this, pause = absl::Seconds(1 / steps_per_second)] { Loop(pause); });
}

void ScriptedEngine::Loop(absl::Duration pause) {
  while (!intake_.stop_reason()) {
    if (Turn()) {
      intake_.WaitForStop(pause);
    } else {
      intake_.WaitForWork(kIdleTurn);
    }
  }
  EndAll();
}

void ScriptedEngine::EndAll() {
  Receive();
  EndCancelledAndOverdue();
  while (!plays_.empty()) {
    FinishInfo finish;
    finish.status = *intake_.stop_reason();
    Finish(plays_.size() - 1, std::move(finish));
  }
}

void ScriptedEngine::Drain(absl::Status refusal) { intake_.Close(std::move(refusal)); }

void ScriptedEngine::Stop(absl::Status reason) {
  intake_.Stop(std::move(reason));
  absl::MutexLock lock(&stop_mutex_);
  if (stopped_) return;
  stopped_ = true;
  if (!thread_.joinable()) return EndAll();
  thread_.join();
}

EngineStats ScriptedEngine::Stats() const {
  absl::MutexLock lock(&stats_mutex_);
  EngineStats stats = stats_;
  stats.waiting = std::max(0, intake_.live() - stats.running);
  stats.sessions = intake_.sessions();
  return stats;
}

}  // namespace moed
