#include "core/engine/step_loop.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/engine/logprobs.h"

namespace moed {

StepLoop::StepLoop(const EngineParts& parts, int max_running, int max_step_tokens, Intake& intake)
    : parts_(parts),
      max_running_(parts.kv.slots() > 0 ? std::min(max_running, parts.kv.slots()) : max_running),
      max_step_tokens_(max_step_tokens),
      intake_(intake),
      sampler_(parts.model.spec().vocabulary) {}

bool StepLoop::Turn() {
  counts_.heartbeat_nanos = parts_.clock.NowNanos();
  Receive();
  EndCancelled();
  EndOverdue();
  Schedule();
  if (!batch_.empty()) Compute();
  Publish();
  return !live_.empty();
}

void StepLoop::EndAll(const absl::Status& reason) {
  Receive();
  EndCancelled();
  while (!live_.empty()) Finish(*live_.back(), reason, FinishReason::kStop);
  while (auto session = intake_.TakeOldestSession()) EndSequence(*session);
  Publish();
}

EngineStats StepLoop::Stats() const {
  absl::MutexLock lock(&stats_mutex_);
  return stats_;
}

void StepLoop::Receive() {
  const size_t known = live_.size();
  intake_.Receive(live_, cancellations_);
  for (size_t i = known; i < live_.size(); ++i) {
    Sequence& sequence = *live_[i]->sequence;
    if (FidelityOf(*live_[i]) >= sequence.kv_fidelity) continue;
    parts_.kv.Release(sequence.kv);  // computed less strictly than this request asks for: once more
    sequence.kv_fidelity = Fidelity::Exact();
  }
}

void StepLoop::EndCancelled() {
  for (auto& [id, status] : std::exchange(cancellations_, {})) {
    auto found = std::find_if(live_.begin(), live_.end(), [id = id](const auto& live) { return live->id == id; });
    if (found != live_.end()) Finish(**found, status, FinishReason::kStop);
  }
}

void StepLoop::EndOverdue() {
  const int64_t now = parts_.clock.NowNanos();
  for (size_t i = live_.size(); i-- > 0;) {
    LiveRequest& live = *live_[i];
    if (!live.Overdue(now)) continue;
    TokenDelta rest{live.answer->Flush(), {}};
    if (!rest.text.empty()) live.observer->OnTokens(std::move(rest));
    Finish(live, absl::OkStatus(), FinishReason::kTimeLimit);
  }
}

void StepLoop::Schedule() {
  batch_.clear();
  chunks_.clear();
  snapshot_.clear();
  PlanBudget budget{max_step_tokens_, max_running_, parts_.kv.pages(), std::max(max_running_, kSharedStepTokens)};
  for (const auto& live : live_) {
    const KvSequence& kv = live->sequence->kv;
    const int held = static_cast<int>(kv.pages.size());
    if (live->running) budget.available_pages -= held;
    snapshot_.push_back(
        {live->running, live->Decoding(), live->Pending(), held, KvPool::PagesFor(live->Goal(), parts_.kv.page_tokens())});
  }
  const BatchPlan plan = PlanStep(snapshot_, budget);
  for (size_t i = plan.running; i < live_.size() && live_[i]->running; ++i) Preempt(*live_[i]);
  for (int i = 0; i < plan.running; ++i) live_[i]->running = true;  // before memory is looked for: theirs stays
  for (int i = 0; i < plan.running; ++i) Reserve(*live_[i]);
  for (const PlannedChunk& chunk : plan.chunks) AddChunk(*live_[chunk.sequence], chunk.tokens);
  for (int i = 0; i < plan.running; ++i) {
    if (!live_[i]->started) Start(*live_[i]);
  }
  for (int i = plan.running; i-- > 0;) {  // one token to score: nothing to compute
    if (live_[i]->Pending() == 0) Finish(*live_[i], absl::OkStatus(), FinishReason::kStop);
  }
}

void StepLoop::Preempt(LiveRequest& live) {
  parts_.kv.Release(live.sequence->kv);
  live.running = false;
  live.prompt_logprobs.clear();
  live.prompt_top.clear();
  ++live.preemptions;
  ++counts_.preemptions;
}

void StepLoop::Reserve(LiveRequest& live) {
  while (!parts_.kv.Reserve(live.sequence->kv, live.Goal())) FreeMemory();
}

// The plan counted on pages and a slot that no running request holds: they are somewhere.
void StepLoop::FreeMemory() {
  if (intake_.DropIdleMemory(parts_.kv)) return;
  const auto holds = [](const auto& live) { return !live->running && live->sequence->kv.holds_memory(); };
  auto waiting = std::find_if(live_.rbegin(), live_.rend(), holds);
  if (waiting == live_.rend()) {  // a session was taken up since this turn began
    const size_t known = live_.size();
    Receive();
    MOED_CHECK(live_.size() > known);
    return;
  }
  parts_.kv.Release((*waiting)->sequence->kv);
}

void StepLoop::Start(LiveRequest& live) {
  Sequence& sequence = *live.sequence;
  if (!sequence.begun) parts_.provider.OnSequenceStart(sequence.id);
  sequence.begun = true;
  live.started = true;
  live.started_nanos = parts_.clock.NowNanos();
  live.counters_before = parts_.provider.sequence_counters(sequence.id);
  live.cached_tokens = sequence.kv.length;
  counts_.prompt_tokens += live.prompt_tokens;
  counts_.cached_tokens += live.cached_tokens;
  live.observer->OnStarted(live.prompt_tokens, live.cached_tokens);
}

void StepLoop::AddChunk(LiveRequest& live, int tokens) {
  Sequence& sequence = *live.sequence;
  const bool reaches_goal = tokens == live.Pending();
  SequenceChunk chunk;
  chunk.sequence = sequence.id;
  // Where steps are of one token, a text that is scored meets what an answer meets.
  const bool as_answer = live.Decoding() || (!live.answer && max_step_tokens_ == 1);
  chunk.phase = as_answer ? Phase::kDecode : Phase::kPrefill;
  chunk.tokens = std::span<const TokenId>(sequence.tokens).subspan(sequence.kv.length, tokens);
  chunk.kv = &sequence.kv;
  chunk.fidelity = FidelityOf(live);
  chunk.first_logits = !live.answer ? 0 : reaches_goal ? tokens - 1 : tokens;
  chunks_.push_back(chunk);
  batch_.push_back(&live);
}

void StepLoop::Compute() {
  const bool prefills =
      std::any_of(chunks_.begin(), chunks_.end(), [](const auto& chunk) { return chunk.phase == Phase::kPrefill; });
  if (parts_.trace != nullptr) parts_.trace->BeginStep(prefills ? StepKind::kPrefill : StepKind::kDecode);
  {
    TraceSpan span(parts_.trace, "step", kComputeTrack);
    parts_.model.Forward(
        std::span<SequenceChunk>(chunks_), parts_.provider,
        [this](int chunk, int token, std::span<float> logits) { TakeLogits(*batch_[chunk], chunks_[chunk], token, logits); });
  }
  ++counts_.steps;
  TraceSpan span(parts_.trace, "hand out", kComputeTrack);
  for (size_t i = 0; i < batch_.size(); ++i) Settle(*batch_[i], chunks_[i].status);
}

void StepLoop::TakeLogits(LiveRequest& live, const SequenceChunk& chunk, int token, std::span<const float> logits) {
  TraceSpan span(parts_.trace, "sampling", kComputeTrack);
  if (live.answer) return live.failure.Update(Choose(live, logits));
  // The chunk is a piece of the text that is scored; what comes next may lie in the piece after it.
  const std::vector<TokenId>& text = live.sequence->tokens;
  const size_t next = static_cast<size_t>(chunk.tokens.data() - text.data()) + static_cast<size_t>(token) + 1;
  MOED_CHECK(next < text.size());
  live.failure.Update(ScoreNext(live, text[next], logits));
}

absl::Status StepLoop::ScoreNext(LiveRequest& live, TokenId next, std::span<const float> logits) {
  const double normalizer = LogNormalizer(logits);
  const double logprob = logits[next.value()] - normalizer;
  if (!std::isfinite(logprob)) return Internal("the model's logits are not finite numbers");
  live.prompt_logprobs.push_back(static_cast<float>(logprob));
  const int alternatives = live.request.top_logprobs;
  if (alternatives > 0) live.prompt_top.push_back(TopLogprobs(logits, normalizer, alternatives));
  return absl::OkStatus();
}

absl::Status StepLoop::Choose(LiveRequest& live, std::span<const float> logits) {
  const SamplingContext context{live.seed, live.sequence->tokens, live.session_tokens + live.prompt_tokens,
                                live.answer->forbidden()};
  MOED_ASSIGN_OR_RETURN(const TokenId token, sampler_.Sample(logits, live.request.sampling, context));
  TokenInfo info{token};
  if (live.request.logprobs) {
    const double normalizer = LogNormalizer(logits);
    info.logprob = static_cast<float>(logits[token.value()] - normalizer);
    info.top = TopLogprobs(logits, normalizer, live.request.top_logprobs);
  }
  live.choice = std::move(info);
  return absl::OkStatus();
}

void StepLoop::Settle(LiveRequest& live, const absl::Status& computed) {
  live.failure.Update(computed);
  if (!live.failure.ok()) return Finish(live, live.failure, FinishReason::kStop);
  if (live.choice) return Emit(live);
  if (live.Pending() == 0) Finish(live, absl::OkStatus(), FinishReason::kStop);
}

void StepLoop::Emit(LiveRequest& live) {
  TokenInfo token = *std::exchange(live.choice, std::nullopt);
  if (live.answer->completion_tokens() == 0) live.first_token_nanos = parts_.clock.NowNanos();
  if (!live.answer->Ends(token.token)) live.sequence->tokens.push_back(token.token);
  ++counts_.generated_tokens;
  TokenDelta delta;
  const auto reason = live.answer->Push(std::move(token), delta);
  if (!delta.tokens.empty() || !delta.text.empty()) live.observer->OnTokens(std::move(delta));
  if (reason) Finish(live, absl::OkStatus(), *reason);
}

void StepLoop::Finish(LiveRequest& live, absl::Status status, FinishReason reason) {
  auto place = std::find_if(live_.begin(), live_.end(), [&](const auto& other) { return other.get() == &live; });
  const std::unique_ptr<LiveRequest> ended = std::move(*place);
  live_.erase(place);
  const bool succeeded = status.ok();
  const SequenceCounters counters = ended->started ? parts_.provider.sequence_counters(ended->sequence->id) : SequenceCounters{};
  const FinishInfo finish = Summarize(*ended, std::move(status), reason, counters, parts_.clock.NowNanos());
  if (finish.experts_lowered + finish.experts_skipped + finish.experts_masked > 0) {
    ended->sequence->kv_fidelity = std::max(ended->sequence->kv_fidelity, FidelityOf(*ended));
  }
  // Its name and session are free, and the figures without it, before its observer hears of the end.
  if (auto dropped = intake_.Release(*ended, Retire(*ended, succeeded))) EndSequence(*dropped);
  Publish();
  ended->observer->OnFinish(finish);
  intake_.Finished();
}

// The sequence to keep, or null. A failed request leaves its session as it was.
std::unique_ptr<Sequence> StepLoop::Retire(LiveRequest& live, bool succeeded) {
  std::unique_ptr<Sequence> sequence = std::move(live.sequence);
  if (!succeeded) {
    sequence->tokens.resize(live.session_tokens);
    KvSequence& kv = sequence->kv;
    if (kv.length > live.session_tokens) parts_.kv.CutBack(kv, live.session_tokens, kv.length);
  }
  if (!sequence->session.empty() && !sequence->tokens.empty()) return sequence;
  EndSequence(*sequence);
  return nullptr;
}

void StepLoop::EndSequence(Sequence& sequence) {
  parts_.kv.Release(sequence.kv);
  if (sequence.begun) parts_.provider.OnSequenceEnd(sequence.id);
}

void StepLoop::Publish() {
  counts_.running = static_cast<int>(std::count_if(live_.begin(), live_.end(), [](const auto& live) { return live->running; }));
  counts_.kv_pages_used = parts_.kv.pages() - parts_.kv.free_pages();
  absl::MutexLock lock(&stats_mutex_);
  stats_ = counts_;
}

}  // namespace moed
