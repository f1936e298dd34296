#include "core/engine/step_loop.h"

#include <algorithm>
#include <climits>
#include <utility>

namespace moed {
namespace {

// Of the tokens that are computed while experts are read: what takes longer than that reading would make others wait for it.
constexpr double kPromptShare = .9, kSharedShare = .75;
constexpr absl::Duration kRestoringTurn = absl::Milliseconds(10);  // while nothing else is to be done

}  // namespace

StepLoop::StepLoop(const EngineParts& parts, const StepLoopOptions& options, Intake& intake)
    : parts_(parts),
      max_running_(options.max_running),
      max_step_tokens_(options.max_step_tokens),
      usual_step_tokens_(std::min(options.usual_step_tokens, options.max_step_tokens)),
      prompt_lookup_(options.prompt_lookup),
      intake_(intake),
      sampler_(parts.model.spec().vocabulary),
      prompt_step_(usual_step_tokens_, options.max_step_tokens, kPromptShare),
      shared_step_(std::min(SharedStepTokens(options.max_running), options.max_step_tokens), options.max_step_tokens,
                   kSharedShare),
      scored_step_(std::min(options.max_running + options.logits_rows, options.max_step_tokens), options.max_step_tokens,
                   kSharedShare) {
  if (!options.prefix_cache) return;
  holders_.resize(static_cast<size_t>(parts.kv.pages()));
  if (parts.model.spec().encoder || parts.model.spec().prefix) {
    sources_.emplace(parts.kv);
    return;
  }
  prefixes_.emplace(parts.kv);
  if (parts.kv.slots() > 0) checkpoints_.emplace(parts.kv, *prefixes_);
}

bool StepLoop::Turn() {
  heartbeat_nanos_ = parts_.clock.NowNanos();
  if (const std::exception_ptr thrown = RunTasks()) std::rethrow_exception(thrown);
  Receive();
  EndCancelled();
  EndOverdue();
  EndHopeless();
  if (parts_.spill) TendSpill();
  Schedule();
  if (!batch_.empty()) {
    Compute();
  } else if (parts_.spill && parts_.spill->restoring()) {
    parts_.spill->AwaitWork(kRestoringTurn);
  }
  if (live_.empty()) Rest();
  Publish();
  return !live_.empty();
}

// The next turn may be far: what a long prompt has borrowed is the experts' again.
void StepLoop::Rest() {
  if (parts_.spill) TendSpill();
  if (ActivationLender* const lender = parts_.provider.lender()) lender->Lend(0).IgnoreError();
}

void StepLoop::EndAll(const absl::Status& reason) {
  RunTasks();  // the engine ends all the same, whatever they throw
  Receive();
  EndCancelled();
  while (!live_.empty()) Finish(*live_.back(), reason, FinishReason::kStop);
  while (auto session = intake_.TakeOldestSession()) EndSequence(*session);
  Publish();
}

std::exception_ptr StepLoop::RunTasks() {
  std::exception_ptr first;
  for (const auto& task : intake_.TakeTasks()) {
    try {
      task();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  return first;
}

EngineStats StepLoop::Stats() const {
  absl::MutexLock lock(&stats_mutex_);
  EngineStats stats = stats_;
  stats.heartbeat_nanos = heartbeat_nanos_;
  return stats;
}

void StepLoop::Receive() {
  const size_t known = live_.size();
  intake_.Receive(live_, cancellations_);
  for (size_t i = known; i < live_.size(); ++i) {
    Sequence& sequence = *live_[i]->sequence;
    turns_.Enter(live_[i]->owner, live_[i]->request.priority, live_[i]->request.tenant_limits);
    if (parts_.spill) parts_.spill->TakenUp(sequence.id);
    KvSequence& kv = sequence.kv;
    if (kv.length > sequence.begun_with()) parts_.kv.CutBack(kv, sequence.begun_with(), kv.length);
    if (parts_.kv.Lost(kv)) ReleaseLost(sequence, UsesPrefixes(*live_[i]));
    if (FidelityOf(*live_[i]) >= sequence.kv_fidelity) continue;
    parts_.kv.Release(kv);  // computed less strictly than this request asks for: once more
    sequence.kv_fidelity = Fidelity::Exact();
  }
  for (const auto& sequence : intake_.TakeDeleted()) {
    EndSequence(*sequence);
    if (prefixes_) prefixes_->Forget(Owned(*sequence));
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
    if (live_[i]->Overdue(now)) EndAtTimeLimit(*live_[i]);
  }
}

void StepLoop::EndAtTimeLimit(LiveRequest& live) {
  if (!live.answer) {
    return Finish(live, absl::DeadlineExceededError("the request took as long as any may (--max-request-seconds)"),
                  FinishReason::kTimeLimit);
  }
  EndWithText(live, FinishReason::kTimeLimit);
}

// What is known of an answer is all of it, as far as it goes.
void StepLoop::EndWithText(LiveRequest& live, FinishReason reason) {
  if (live.answer) {
    TokenDelta rest{live.answer->Flush(), {}};
    if (!rest.text.empty()) live.observer->OnTokens(std::move(rest));
  }
  Finish(live, absl::OkStatus(), reason);
}

void StepLoop::Schedule() {
  batch_.clear();
  chunks_.clear();
  snapshot_.clear();
  const int may_run = TakeTurns();
  for (int i = 0; i < may_run; ++i) {
    if (!live_[i]->running) TakePrefix(*live_[i]);
  }
  TakeSources(may_run);
  PlanBudget budget{.max_step_tokens = max_step_tokens_,
                    .max_running = may_run,
                    .available_pages = parts_.kv.pages(),
                    .max_shared_tokens = shared_step_.tokens(),
                    .whole_apart = parts_.model.spec().encoder.has_value(),
                    .max_prompt_tokens = prompt_step_.tokens()};
  TakeSnapshot(budget);
  const BatchPlan plan = PlanStep(snapshot_, budget);
  LetOvertake(plan);
  for (size_t i = plan.running; i < live_.size() && live_[i]->running; ++i) Preempt(*live_[i]);
  for (int i = 0; i < plan.running; ++i) {  // before memory is looked for: theirs stays
    if (live_[i]->started && !live_[i]->running) NoteTaken(*live_[i]);
    live_[i]->running = true;
  }
  for (int i = 0; i < plan.running; ++i) Reserve(*live_[i]);
  for (int i = 0; i < plan.running; ++i) AskDisk(*live_[i]);
  scored_tokens_ = ScoredTokens(plan);
  for (const PlannedChunk& chunk : plan.chunks) {
    if (!Restoring(*live_[chunk.sequence])) AddChunk(*live_[chunk.sequence], chunk.tokens);
  }
  if (prompt_lookup_ && plan.running == 1 && chunks_.size() == 1) AddDraft(*live_.front());
  for (int i = 0; i < plan.running; ++i) {
    if (!live_[i]->started && !live_[i]->awaits_source && !Restoring(*live_[i])) Start(*live_[i]);
  }
  for (int i = plan.running; i-- > 0;) {  // one token to score: nothing to compute
    if (live_[i]->Pending() == 0) Finish(*live_[i], absl::OkStatus(), FinishReason::kStop);
  }
}

void StepLoop::TakeSnapshot(PlanBudget& budget) {
  const std::vector<TurnEntry> entries = TurnEntries();
  const std::vector<int> ranks = turns_.RankOwners(entries);
  const bool shares = parts_.kv.shared_holds() > 0;
  budget.available_pages -= shares ? CountHolders() : 0;
  for (const auto& live : live_) {
    const KvSequence& kv = live->sequence->kv;
    const int held = static_cast<int>(kv.pages.size());
    if (live->running && !shares) budget.available_pages -= held;
    const int own = live->running ? 1 : 0;
    const auto shared = [&](int32_t page) { return holders_[static_cast<size_t>(page)] > own; };
    const auto shared_pages = shares ? std::count_if(kv.pages.begin(), kv.pages.end(), shared) : 0;
    snapshot_.push_back({live->running, live->Decoding(), Restoring(*live) ? 0 : live->PendingNow(), held,
                         KvPool::PagesFor(live->Goal(), parts_.kv.page_tokens()), static_cast<int>(shared_pages),
                         live->BeginsWhole() && !live->awaits_source, ranks[snapshot_.size()], turns_.limits(live->owner).weight,
                         live->overtook, live->preemptions > 0});
  }
}

void StepLoop::Start(LiveRequest& live) {
  Sequence& sequence = *live.sequence;
  if (!sequence.begun) parts_.provider.OnSequenceStart(sequence.id);
  sequence.begun = true;
  live.started = true;
  live.started_nanos = parts_.clock.NowNanos();
  live.counters_before = parts_.provider.sequence_counters(sequence.id);
  live.cached_tokens = live.last_checkpoint = sequence.kv.length;
  NoteTaken(live);
  // As it is now a request that fails leaves it.
  if (checkpoints_ && !sequence.session.empty()) checkpoints_->Save(Owned(sequence), sequence.kv, sequence.kv_fidelity);
  counts_.prompt_tokens += live.prompt_tokens;
  counts_.cached_tokens += live.cached_tokens;
  if (UsesPrefixes(live) || UsesSources(live)) {
    counts_.prefix_queries += static_cast<uint64_t>(live.prompt_tokens - (live.cached_tokens - live.prefix_tokens));
    counts_.prefix_hits += static_cast<uint64_t>(live.prefix_tokens);
  }
  live.observer->OnStarted(live.prompt_tokens, live.cached_tokens);
}

void StepLoop::Finish(LiveRequest& live, absl::Status status, FinishReason reason) {
  auto place = std::find_if(live_.begin(), live_.end(), [&](const auto& other) { return other.get() == &live; });
  const std::unique_ptr<LiveRequest> ended = std::move(*place);
  live_.erase(place);
  const bool succeeded = status.ok();
  turns_.Leave(ended->owner, ended->request.priority);
  pace_.OnEnd(ended->computed_tokens);
  const SequenceCounters counters = ended->started ? parts_.provider.sequence_counters(ended->sequence->id) : SequenceCounters{};
  FinishInfo finish = Summarize(*ended, std::move(status), reason, counters, parts_.clock.NowNanos());
  if (ended->started) NoteLoss(*ended);
  if (Restoring(*ended)) ReleaseMemory(*ended);  // its pages hold anything
  // Its name and session are free, and the figures without it, before its observer hears of the end.
  const SequenceId sequence = ended->sequence->id;
  if (auto dropped = intake_.Release(*ended, Retire(*ended, succeeded))) {
    if (dropped->id == sequence) finish.session_tokens = 0;  // not one conversation is kept
    EndSequence(*dropped);
  }
  Publish();
  ended->observer->OnFinish(finish);
  intake_.Finished();
}

// The sequence to keep, or null. A failed request leaves its session as it was.
std::unique_ptr<Sequence> StepLoop::Retire(LiveRequest& live, bool succeeded) {
  std::unique_ptr<Sequence> sequence = std::move(live.sequence);
  KvSequence& kv = sequence->kv;
  const int begun_with = sequence->begun_with();
  if (parts_.spill) parts_.spill->Trim(sequence->id, succeeded ? begun_with : INT_MAX);
  idle_saved_ = false;
  if (succeeded) {
    sequence->Keep();
  } else {
    if (kv.length > begun_with) {
      if (UsesPrefixes(live) && !parts_.kv.CanCutBack(kv, begun_with, kv.length)) RememberEnd(*sequence);
      parts_.kv.CutBack(kv, begun_with, kv.length);
    }
    sequence->TakeBack();
  }
  // Pages that were reserved, and not written to, are nobody's any more.
  if (static_cast<int>(kv.pages.size()) > KvPool::PagesFor(kv.length, parts_.kv.page_tokens())) {
    parts_.kv.CutBack(kv, kv.length, kv.length);
  }
  if (parts_.kv.Lost(kv)) ReleaseLost(*sequence, UsesPrefixes(live));
  if (parts_.spill) sequence->on_disk = parts_.spill->TokensOnDisk(sequence->id);
  sequence->used_nanos = parts_.clock.NowNanos();
  if (!sequence->session.empty() && !sequence->tokens.empty()) {
    if (sequence->begun) parts_.provider.OnSequencePause(sequence->id);
    return sequence;
  }
  if (UsesPrefixes(live)) RememberEnd(*sequence);
  EndSequence(*sequence);
  return nullptr;
}

void StepLoop::EndSequence(Sequence& sequence) {
  parts_.kv.Release(sequence.kv);
  if (parts_.spill) parts_.spill->Forget(sequence.id);
  idle_saved_ = false;
  if (sequence.begun) parts_.provider.OnSequenceEnd(sequence.id);
}

void StepLoop::Publish() {
  counts_.running = static_cast<int>(std::count_if(live_.begin(), live_.end(), [](const auto& live) { return live->running; }));
  counts_.kv_pages = parts_.kv.pages();
  counts_.kv_pages_used = parts_.kv.pages() - parts_.kv.free_pages();
  counts_.kv_pages_remembered = parts_.kv.remembered_pages();
  counts_.checkpoints = parts_.kv.remembered_slots();
  counts_.seconds_per_end = pace_.SecondsPerEnd();
  PublishRunning();
  if (parts_.spill) counts_.spill = parts_.spill->stats();
  absl::MutexLock lock(&stats_mutex_);
  stats_ = counts_;
  published_pace_ = pace_;
}

}  // namespace moed
