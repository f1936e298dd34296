// The engine's turn: do what others ask for between steps, receive, end what is cancelled or out of time, plan, compute one step,
// hand out tokens. step_loop_turns.cc has whose turn it is, step_loop_memory.cc what of keys and values they hold,
// step_loop_spill.cc what of those is on disk, step_loop_step.cc the step itself, step_loop_drafts.cc the drafts in it.
#pragma once

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/base/fidelity.h"
#include "core/base/trace.h"
#include "core/engine/batch_plan.h"
#include "core/engine/checkpoints.h"
#include "core/engine/drafts.h"
#include "core/engine/engine.h"
#include "core/engine/intake.h"
#include "core/engine/kv_spill.h"
#include "core/engine/live_request.h"
#include "core/engine/pace.h"
#include "core/engine/prefix_cache.h"
#include "core/engine/sampler.h"
#include "core/engine/source_cache.h"
#include "core/engine/step_size.h"
#include "core/engine/turns.h"
#include "core/expert/provider.h"
#include "core/model/kv_pool.h"
#include "core/model/model.h"

namespace moed {

// Tokens of a step in which somebody decodes: what a prompt beside it may cost an answer that is streamed. More where the step
// waits for experts (step_size.h).
inline constexpr int kSharedStepTokens = 64;
// Of one with prompts alone. More where it waits for experts, too: who comes meanwhile waits for them whatever it computes.
inline constexpr int kUsualStepTokens = 512;

// The same where so many may run: half of it is a prompt's, however many decode.
constexpr int SharedStepTokens(int max_running) { return std::max(kSharedStepTokens, max_running + kSharedStepTokens / 2); }

// What the engine works with; all outlive it. `trace` and `spill` may be null.
struct EngineParts {
  Model& model;
  ExpertProvider& provider;
  KvPool& kv;
  const Tokenizer& tokenizer;
  const Clock& clock;
  Trace* trace = nullptr;
  Fidelity fidelity;  // where a request does not say
  KvSpill* spill = nullptr;
  // Seconds to read the experts that a prompt of so many tokens needs and that are not in memory; empty, or absent: not known.
  std::function<std::optional<double>(int tokens)> cold_seconds;
  // Told on the engine's thread, after every OnFinish, where that thread failed: nothing is computed any more. Must not block;
  // may be empty.
  std::function<void(const absl::Status&)> failed;
};

struct StepLoopOptions {
  int max_running = 0;  // where sequences need slots, at most as many as there are
  int max_step_tokens = 0;
  int usual_step_tokens = 0;  // StepEngineOptions
  int logits_rows = 0;        // the same
  bool prefix_cache = false;
  bool prompt_lookup = false;
};

// Engine thread only, except Stats.
//
// live_ begins with its running requests, in the order in which they began to run, those last that have overtaken others; those
// that run next follow, then the others in order of arrival (turns.h, batch_plan.h). All pages and slots that no
// running request holds can be had at any moment: free ones first, which the prefix cache then forgets, then those of idle
// sessions, then those of waiting requests; both are computed again when they run, as far as they are not known.
class StepLoop final : private StepWatcher {
 public:
  StepLoop(const EngineParts& parts, const StepLoopOptions& options, Intake& intake);

  bool Turn();                                             // false when no request is left
  void EndAll(const absl::Status& reason);                 // every request, every session
  EngineStats Stats() const;                               // any thread; what the intake knows is missing
  std::optional<double> PrefillSeconds(int tokens) const;  // any thread; as Pace says

 private:
  // All of them, for somebody waits for each. Returns what the first that failed has thrown.
  std::exception_ptr RunTasks();
  void Rest();
  void Receive();
  void EndCancelled();
  void EndOverdue();
  void EndHopeless();
  double WaitSeconds(const LiveRequest& live, int before) const;
  absl::Status CheckDeadline(const LiveRequest& live, int before);
  int UnknownTokens(const LiveRequest& live);
  void EndAtTimeLimit(LiveRequest& live);
  void EndWithText(LiveRequest& live, FinishReason reason);

  // Brings live_ in its order. Returns how many may run.
  int TakeTurns();
  std::vector<TurnEntry> TurnEntries() const;
  const LiveRequest* GiveWay();
  void LetOvertake(const BatchPlan& plan);
  std::vector<int> CountPagesOfTenants();
  void NoteHeavyTenants();
  void PublishRunning();
  // For experts, in all steps of the sequences that this one computes.
  double WaitedSeconds() const;
  // `scores`: some text is scored in it.
  void MeasureStep(int64_t nanos, bool scores, double waited_seconds);
  void Schedule();
  void TakeSnapshot(PlanBudget& budget);
  int CountHolders();
  // Whether it uses and fills the prefix cache: scored texts do not, nor prompts while they are scored.
  bool UsesPrefixes(const LiveRequest& live) const { return prefixes_ && !live.ScoresPrompt(); }
  void TakePrefix(LiveRequest& live);
  // The same of sources, which scored texts have, too.
  bool UsesSources(const LiveRequest& live) const { return sources_ && live.shared_tokens > 0; }
  static OwnedTokens SourceOf(const LiveRequest& live);
  void TakeSources(int may_run);
  void TakeSource(LiveRequest& live);
  uint64_t PrefixVersion() const { return prefixes_->version() + (checkpoints_ ? checkpoints_->version() : 0); }
  void TakeCheckpoint(LiveRequest& live, const OwnedTokens& tokens, const PrefixCache::Match& known);
  void Preempt(LiveRequest& live);
  void ReleaseMemory(LiveRequest& live);
  void Reserve(LiveRequest& live);
  void FreeMemory();
  static OwnedTokens Owned(const Sequence& sequence) { return {sequence.tokens, sequence.owner}; }
  bool DropIdleMemory(absl::FunctionRef<bool(const Sequence&)> may_go);

  // Keys and values on disk (kv_spill.h). A request that runs and waits for them has its pages, and no part in a step.
  void TendSpill();
  void SaveIdleSession();
  bool IdleMayLoseMemory() const;
  void AskDisk(LiveRequest& live);
  bool Restoring(const LiveRequest& live) const { return parts_.spill && parts_.spill->Restoring(live.sequence->id); }
  void TakeRestored(const KvSpill::Restored& restored);
  void NotePrefill(int64_t nanos);

  void Start(LiveRequest& live);
  Fidelity FidelityOf(const LiveRequest& live) const { return live.request.fidelity.value_or(parts_.fidelity); }
  int DraftRoom(const LiveRequest& live) const;
  void AddDraft(LiveRequest& live);
  int TakeBackDraft(LiveRequest& live);
  int ScoredTokens(const BatchPlan& plan) const;
  void AddChunk(LiveRequest& live, int tokens);

  void Compute();
  // The heart beats, and those for whom nobody waits any more leave the step.
  void OnLayerDone(std::span<SequenceChunk> chunks) override;
  bool needs_layers() const override { return false; }
  void TakeLogits(LiveRequest& live, const SequenceChunk& chunk, int token, std::span<const float> logits);
  absl::Status ScoreNext(LiveRequest& live, TokenId next, std::span<const float> logits);
  bool IsNext(const LiveRequest& live, size_t position) const;
  absl::Status Choose(LiveRequest& live, std::span<const float> logits);
  // Of its `tokens` of the step.
  void Settle(LiveRequest& live, const absl::Status& computed, int tokens);
  void CountComputed(LiveRequest& live, int tokens);
  void KeepCheckpoint(LiveRequest& live);
  void NoteLoss(LiveRequest& live);
  void NoteTaken(LiveRequest& live);
  void NoteFastMatmul(LiveRequest& live, const SequenceChunk& chunk);
  void Emit(LiveRequest& live);

  void Finish(LiveRequest& live, absl::Status status, FinishReason reason);
  std::unique_ptr<Sequence> Retire(LiveRequest& live, bool succeeded);
  void RememberEnd(Sequence& sequence);
  void ReleaseLost(Sequence& sequence, bool remember);
  void EndSequence(Sequence& sequence);
  void Publish();

  const EngineParts parts_;
  const int max_running_;
  const int max_step_tokens_, usual_step_tokens_;
  const bool prompt_lookup_;
  Intake& intake_;
  Sampler sampler_;
  std::optional<PrefixCache> prefixes_;
  std::optional<Checkpoints> checkpoints_;  // with a prefix cache, where sequences need slots
  std::optional<SourceCache> sources_;      // in its place, where prompts are computed whole
  std::vector<uint16_t> holders_;           // [page]: running sequences that hold it; with one of the caches
  std::vector<std::unique_ptr<LiveRequest>> live_;
  Cancellations cancellations_;
  Turns turns_;
  Pace pace_;
  StepSize prompt_step_, shared_step_;
  StepSize scored_step_;         // where texts are scored beside answers: every row wants logits, which are dear
  int scored_tokens_ = INT_MAX;  // of the current step, for each text that is scored
  std::vector<CountsByPriority> running_by_owner_;  // as the intake knows them
  std::vector<LiveRequest*> batch_;                 // of the current step; parallel to chunks_
  std::vector<SequenceChunk> chunks_;
  std::vector<PlanSequence> snapshot_;
  DraftPrices prices_;
  DraftTrials trials_;
  bool idle_saved_ = false;     // no idle session was worth writing when they were looked at last
  uint64_t spill_version_ = 0;  // of what sessions were told
  EngineStats counts_;

  std::atomic<int64_t> heartbeat_nanos_{0};
  mutable absl::Mutex stats_mutex_;
  EngineStats stats_ ABSL_GUARDED_BY(stats_mutex_);
  Pace published_pace_ ABSL_GUARDED_BY(stats_mutex_);
};

}  // namespace moed
