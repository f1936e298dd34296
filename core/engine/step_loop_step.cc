// One step in the engine's turn: chunks of sequences are computed, tokens chosen by their logits and handed out.
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/engine/logprobs.h"
#include "core/engine/step_loop.h"
#include "core/grammar/matcher.h"

namespace moed {

// Whoever decodes waits for all passes over the head. What a step has room for is shared equally by the texts that are scored.
int StepLoop::ScoredTokens(const BatchPlan& plan) const {
  int decoding = 0, scored = 0;
  for (const PlannedChunk& chunk : plan.chunks) {
    decoding += live_[chunk.sequence]->Decoding() ? 1 : 0;
    scored += live_[chunk.sequence]->ScoresPrompt() ? 1 : 0;
  }
  return decoding == 0 || scored == 0 ? INT_MAX : std::max(1, (scored_step_.tokens() - decoding) / scored);
}

void StepLoop::AddChunk(LiveRequest& live, int tokens) {
  Sequence& sequence = *live.sequence;
  if (live.ScoresPrompt() && !live.BeginsWhole()) tokens = std::min(tokens, scored_tokens_);
  if (live.next_checkpoint > sequence.kv.length) tokens = std::min(tokens, live.next_checkpoint - sequence.kv.length);
  // A checkpoint is kept before the last step of a prompt, and not far from its end.
  if (checkpoints_ && tokens == live.Pending() && tokens > usual_step_tokens_) tokens -= usual_step_tokens_;
  const bool reaches_goal = tokens == live.Pending();
  SequenceChunk chunk;
  chunk.sequence = sequence.id;
  // Where steps are of one token, a text that is scored meets what an answer meets.
  const bool as_answer = live.Decoding() || (live.ScoresPrompt() && max_step_tokens_ == 1);
  chunk.phase = as_answer ? Phase::kDecode : Phase::kPrefill;
  chunk.tokens = std::span<const TokenId>(sequence.tokens).subspan(sequence.kv.length, tokens);
  chunk.kv = &sequence.kv;
  chunk.fidelity = FidelityOf(live);
  if (sequence.kv.length > 0) chunk.before = sequence.tokens[static_cast<size_t>(sequence.kv.length) - 1];
  chunk.first_logits = live.ScoresPrompt() ? std::clamp(live.scored_from - sequence.kv.length, 0, tokens)
                       : reaches_goal      ? tokens - 1
                                           : tokens;
  chunks_.push_back(chunk);
  batch_.push_back(&live);
}

void StepLoop::Compute() {
  const bool prefills = std::ranges::any_of(chunks_, [](const auto& chunk) { return chunk.phase == Phase::kPrefill; });
  const bool scores = std::ranges::any_of(batch_, [](const LiveRequest* live) { return live->ScoresPrompt(); });
  const double waited_before = prefills ? WaitedSeconds() : 0;
  if (parts_.trace != nullptr) parts_.trace->BeginStep(prefills ? StepKind::kPrefill : StepKind::kDecode);
  const int64_t begun = parts_.clock.NowNanos();
  {
    TraceSpan span(parts_.trace, "step", kComputeTrack);
    parts_.model.Forward(
        std::span<SequenceChunk>(chunks_), parts_.provider,
        [this](int chunk, int token, std::span<float> logits) { TakeLogits(*batch_[chunk], chunks_[chunk], token, logits); },
        this);
  }
  ++counts_.steps;
  MeasureStep(parts_.clock.NowNanos() - begun, scores, prefills ? WaitedSeconds() - waited_before : 0);
  if (parts_.spill) NotePrefill(parts_.clock.NowNanos() - begun);
  if (batch_.size() == 1 && chunks_.front().phase == Phase::kDecode) {
    const LiveRequest& alone = *batch_.front();
    const int64_t took = parts_.clock.NowNanos() - begun;
    prices_.OnStep(alone.drafted, took);
    if (alone.draft_found) trials_.OnStep(std::max(alone.chosen, 1), took);
  }
  TraceSpan span(parts_.trace, "hand out", kComputeTrack);
  for (size_t i = 0; i < batch_.size(); ++i) NoteFastMatmul(*batch_[i], chunks_[i]);
  for (size_t i = 0; i < batch_.size(); ++i) {
    batch_[i]->dropped += chunks_[i].dropped;
    Settle(*batch_[i], chunks_[i].status, static_cast<int>(chunks_[i].tokens.size()));
  }
}

void StepLoop::OnLayerDone(std::span<SequenceChunk> chunks) {
  const int64_t now = parts_.clock.NowNanos();
  heartbeat_nanos_ = now;
  const std::optional<absl::Status> stopped = intake_.Interruptions(cancellations_);
  for (size_t i = 0; i < chunks.size(); ++i) {
    absl::Status& status = chunks[i].status;
    if (!status.ok()) continue;
    LiveRequest& live = *batch_[i];
    if (const auto found = cancellations_.find(live.id); found != cancellations_.end()) {
      status = found->second;
    } else if (stopped) {
      status = *stopped;
    } else if (live.Overdue(now)) {
      live.overdue = true;
      status = absl::DeadlineExceededError("the time limit passed during a step");
    }
  }
}

void StepLoop::TakeLogits(LiveRequest& live, const SequenceChunk& chunk, int token, std::span<const float> logits) {
  TraceSpan span(parts_.trace, "sampling", kComputeTrack);
  // The chunk is a piece of the text that is scored; what comes next may lie in the piece after it.
  const std::vector<TokenId>& text = live.sequence->tokens;
  const size_t next = static_cast<size_t>(chunk.tokens.data() - text.data()) + static_cast<size_t>(token) + 1;
  const size_t end = live.answer ? static_cast<size_t>(live.prompt_tokens) : text.size();
  if (live.ScoresPrompt() && next < end) {
    live.prompt_logprobs.reserve(end);  // once: MemoryBytes counts no room to grow
    return live.failure.Update(ScoreNext(live, text[next], logits));
  }
  MOED_CHECK(live.answer);
  if (IsNext(live, next)) live.failure.Update(Choose(live, logits));
}

absl::Status StepLoop::ScoreNext(LiveRequest& live, TokenId next, std::span<const float> logits) {
  const double normalizer = LogNormalizer(logits);
  const double logprob = logits[next.value()] - normalizer;
  if (!std::isfinite(logprob)) return Internal("the model's logits are not finite numbers");
  live.prompt_logprobs.push_back(static_cast<float>(logprob));
  ++live.scored_tokens;
  const int alternatives = live.request.top_logprobs;
  if (alternatives > 0) live.prompt_top.push_back(TopLogprobs(logits, normalizer, alternatives));
  return absl::OkStatus();
}

// Whether the logits for the token at `position` choose the answer's next one: the answer goes on, and all tokens of the draft
// before it were chosen.
bool StepLoop::IsNext(const LiveRequest& live, size_t position) const {
  const std::vector<TokenId>& tokens = live.sequence->tokens;
  const size_t known = tokens.size() - static_cast<size_t>(live.drafted);
  if (!live.failure.ok() || live.ended || known + static_cast<size_t>(live.chosen) != position) return false;
  return live.chosen == 0 || live.delta.tokens.back().token == tokens[position - 1];
}

absl::Status StepLoop::Choose(LiveRequest& live, std::span<const float> logits) {
  // A decoder does not continue its source: there its own tokens are all, one of which was given.
  const std::vector<TokenId>& tokens = live.sequence->tokens;
  const size_t source = static_cast<size_t>(live.source_tokens), undecided = static_cast<size_t>(live.drafted - live.chosen);
  const auto known = std::span(tokens).subspan(source, tokens.size() - source - undecided);
  const int answer_begin = live.source_tokens > 0 ? 1 : live.prompt_tokens;
  SamplingContext context{live.seed, known, answer_begin, live.answer->forbidden()};
  grammar::Matcher* const format = live.request.format.get();
  const bool may_end = format == nullptr || format->MayEnd();
  if (format != nullptr) {
    MOED_ASSIGN_OR_RETURN(context.allowed, format->Allowed());
    (may_end ? context.ending : context.avoided) = live.answer->ending();
    if (may_end && context.ending.empty() && !std::ranges::any_of(context.allowed, std::identity())) {
      return absl::OkStatus();  // the text is whole, and the model has no token that says so
    }
  }
  MOED_ASSIGN_OR_RETURN(const TokenId token, sampler_.Sample(logits, live.request.sampling, context));
  if (format != nullptr && !(may_end && live.answer->Ends(token))) {
    MOED_RETURN_IF_ERROR(format->Accept(grammar::ProgramBytes(parts_.tokenizer, token)));
  }
  TokenInfo info{token};
  if (live.request.logprobs) {
    const double normalizer = LogNormalizer(logits);
    info.logprob = static_cast<float>(logits[token.value()] - normalizer);
    info.top = TopLogprobs(logits, normalizer, live.request.top_logprobs);
  }
  ++live.chosen;
  live.ended = live.answer->Push(std::move(info), live.delta, may_end);
  return absl::OkStatus();
}

void StepLoop::Settle(LiveRequest& live, const absl::Status& computed, int tokens) {
  tokens -= TakeBackDraft(live);
  turns_.Charge(live.owner, live.request.priority, tokens);
  live.computed_tokens += tokens;
  if (live.overdue) return EndAtTimeLimit(live);
  live.failure.Update(computed);
  if (!live.failure.ok()) return Finish(live, live.failure, FinishReason::kStop);
  CountComputed(live, tokens);
  if (live.chosen > 0) return Emit(live);
  if (live.Pending() == 0) EndWithText(live, FinishReason::kStop);
}

void StepLoop::CountComputed(LiveRequest& live, int tokens) {
  Sequence& sequence = *live.sequence;
  const int end = sequence.kv.length, begin = end - tokens;
  counts_.recomputed_tokens += static_cast<uint64_t>(std::clamp(sequence.computed - begin, 0, tokens));
  sequence.computed = std::max(sequence.computed, end);
  if (begin == 0 && UsesSources(live)) {
    NoteLoss(live);
    sources_->Remember(SourceOf(live), sequence.kv, sequence.kv_fidelity, live.dropped);
  }
  if (!UsesPrefixes(live)) return;
  const int page_tokens = parts_.kv.page_tokens();
  if (begin / page_tokens != end / page_tokens) {  // a page became full
    NoteLoss(live);
    prefixes_->Remember(Owned(sequence), sequence.kv, sequence.kv_fidelity);
  }
  if (checkpoints_ && live.answer->completion_tokens() == live.chosen) KeepCheckpoint(live);
}

void StepLoop::NoteFastMatmul(LiveRequest& live, const SequenceChunk& chunk) {
  if (!chunk.fast_matmul) return;
  live.fast_matmul_tokens += chunk.tokens.size();
  counts_.fast_matmul_tokens += chunk.tokens.size();
  live.sequence->kv_fidelity = std::max(live.sequence->kv_fidelity, Fidelity::FastMatmul());
}

void StepLoop::Emit(LiveRequest& live) {
  if (live.answer->completion_tokens() == live.chosen) live.first_token_nanos = parts_.clock.NowNanos();
  counts_.generated_tokens += static_cast<uint64_t>(live.chosen);
  TokenDelta delta = std::exchange(live.delta, {});
  // All but the last one that was chosen were of a draft, and are there.
  for (auto i = static_cast<size_t>(live.chosen - 1); i < delta.tokens.size(); ++i) {
    live.sequence->tokens.push_back(delta.tokens[i].token);
  }
  intake_.CountGenerated(live.owner, std::exchange(live.chosen, 0));
  if (!delta.tokens.empty() || !delta.text.empty()) live.observer->OnTokens(std::move(delta));
  if (live.ended) Finish(live, absl::OkStatus(), *live.ended);
}

}  // namespace moed
