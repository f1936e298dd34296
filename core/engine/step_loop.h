// The engine's turn: receive, end what is cancelled or out of time, plan, compute one step, hand out tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/base/fidelity.h"
#include "core/base/trace.h"
#include "core/engine/batch_plan.h"
#include "core/engine/engine.h"
#include "core/engine/intake.h"
#include "core/engine/live_request.h"
#include "core/engine/sampler.h"
#include "core/expert/provider.h"
#include "core/model/kv_pool.h"
#include "core/model/model.h"

namespace moed {

// Most tokens of a step in which somebody decodes: what a prompt beside it may cost an answer that is streamed.
inline constexpr int kSharedStepTokens = 64;

// What the engine works with; all outlive it. `trace` may be null.
struct EngineParts {
  Model& model;
  ExpertProvider& provider;
  KvPool& kv;
  const Tokenizer& tokenizer;
  const Clock& clock;
  Trace* trace = nullptr;
  Fidelity fidelity;  // where a request does not say
};

// Engine thread only, except Stats.
//
// live_ is in order of arrival and its running requests are the first ones (batch_plan.h). All pages and slots that no
// running request holds can be had at any moment: from idle sessions first, then from waiting requests that continue one; both
// are computed again when they run. Where sequences need slots no more run than there are.
class StepLoop {
 public:
  StepLoop(const EngineParts& parts, int max_running, int max_step_tokens, Intake& intake);

  bool Turn();                              // false when no request is left
  void EndAll(const absl::Status& reason);  // every request, every session
  EngineStats Stats() const;                // any thread; what the intake knows is missing

 private:
  void Receive();
  void EndCancelled();
  void EndOverdue();

  void Schedule();
  void Preempt(LiveRequest& live);
  void Reserve(LiveRequest& live);
  void FreeMemory();
  void Start(LiveRequest& live);
  Fidelity FidelityOf(const LiveRequest& live) const { return live.request.fidelity.value_or(parts_.fidelity); }
  void AddChunk(LiveRequest& live, int tokens);

  void Compute();
  void TakeLogits(LiveRequest& live, const SequenceChunk& chunk, int token, std::span<const float> logits);
  absl::Status ScoreNext(LiveRequest& live, TokenId next, std::span<const float> logits);
  absl::Status Choose(LiveRequest& live, std::span<const float> logits);
  void Settle(LiveRequest& live, const absl::Status& computed);
  void Emit(LiveRequest& live);

  void Finish(LiveRequest& live, absl::Status status, FinishReason reason);
  std::unique_ptr<Sequence> Retire(LiveRequest& live, bool succeeded);
  void EndSequence(Sequence& sequence);
  void Publish();

  const EngineParts parts_;
  const int max_running_;
  const int max_step_tokens_;
  Intake& intake_;
  Sampler sampler_;
  std::vector<std::unique_ptr<LiveRequest>> live_;
  absl::flat_hash_map<RequestId, absl::Status> cancellations_;
  std::vector<LiveRequest*> batch_;  // of the current step; parallel to chunks_
  std::vector<SequenceChunk> chunks_;
  std::vector<PlanSequence> snapshot_;
  EngineStats counts_;

  mutable absl::Mutex stats_mutex_;
  EngineStats stats_ ABSL_GUARDED_BY(stats_mutex_);
};

}  // namespace moed
