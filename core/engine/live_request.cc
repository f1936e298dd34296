#include "core/engine/live_request.h"

#include <utility>

#include "core/base/clock.h"

namespace moed {

RequestTimings TimingsOf(const LiveRequest& live, int completion_tokens, int64_t now) {
  RequestTimings timings;
  const int64_t arrival = live.request.arrival_nanos;
  timings.duration_seconds = SecondsBetween(arrival, now);
  timings.queue_seconds = SecondsBetween(arrival, live.started ? live.started_nanos : now);
  if (!live.started) return timings;
  const bool answered = completion_tokens > 0;
  timings.prefill_seconds = SecondsBetween(live.started_nanos, answered ? live.first_token_nanos : now);
  if (!answered) return timings;
  timings.decode_seconds = SecondsBetween(live.first_token_nanos, now);
  timings.ttft_seconds = SecondsBetween(arrival, live.first_token_nanos);
  if (completion_tokens > 1) timings.tpot_seconds = timings.decode_seconds / (completion_tokens - 1);
  return timings;
}

bool LiveRequest::Overdue(int64_t now_nanos) const {
  const auto& limit = request.stopping.time_limit_seconds;
  return limit && SecondsBetween(request.arrival_nanos, now_nanos) >= *limit;
}

FinishInfo Summarize(LiveRequest& live, absl::Status status, FinishReason reason, const SequenceCounters& now,
                     int64_t now_nanos) {
  FinishInfo finish;
  finish.status = std::move(status);
  finish.reason = reason;
  finish.prompt_tokens = live.prompt_tokens;
  finish.cached_tokens = live.cached_tokens;
  if (live.answer) {
    finish.completion_tokens = live.answer->completion_tokens();
    if (reason == FinishReason::kStopString) finish.stop_string = live.answer->stop_string();
    finish.stop_token = live.answer->stop_token();
  }
  if (finish.status.ok() && !live.sequence->session.empty()) {
    finish.session_tokens = static_cast<int>(live.sequence->tokens.size());
  }
  finish.seed = live.seed;
  finish.timings = TimingsOf(live, finish.completion_tokens, now_nanos);
  finish.expert_hits = now.hits - live.counters_before.hits;
  finish.expert_misses = now.misses - live.counters_before.misses;
  finish.bytes_read = now.bytes_read - live.counters_before.bytes_read;
  finish.stall_seconds = now.stall_seconds - live.counters_before.stall_seconds;
  finish.preemptions = live.preemptions;
  finish.experts_lowered = now.lowered - live.counters_before.lowered;
  finish.experts_skipped = now.skipped - live.counters_before.skipped;
  finish.experts_masked = now.masked - live.counters_before.masked;
  finish.choices_dropped = static_cast<uint64_t>(live.dropped);
  const uint64_t routed = now.routed_tokens - live.counters_before.routed_tokens;
  const double lost = now.gate_mass_lost - live.counters_before.gate_mass_lost;
  finish.gate_mass_lost = routed > 0 ? lost / static_cast<double>(routed) : 0;
  finish.fast_matmul_tokens = live.fast_matmul_tokens;
  finish.lossy_cached_tokens = live.lossy_cached_tokens;
  if (!finish.status.ok()) return finish;
  finish.prompt_logprobs = std::move(live.prompt_logprobs);
  finish.prompt_top = std::move(live.prompt_top);
  return finish;
}

}  // namespace moed
