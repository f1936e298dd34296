// The only view of experts that the model has: tell what the router chose, take the experts as they become ready, give them back.
//
//   provider.Begin(routing);                        // demands are queued before anything else, then guesses for the layers ahead
//   while (auto ready = provider.Next()) {          // residents first, then in order of arrival
//     if (!ready->status.ok()) ...                  // this expert could not be read: only the tokens that chose it fail
//     auto gate = ready->handle.Part(ExpertPart::kGate);   // waits for that part alone
//   }                                               // the handle's end unpins; the next read already runs while this one
//   computes
//
// The order of arrival differs from run to run; whoever adds the outputs up does so in slot order (exact mode).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "core/base/ready_event.h"
#include "core/expert/routing.h"
#include "core/expert/step_way.h"
#include "core/store/description.h"

namespace moed {

// Where the packed matrix of a part is, as long as its handle lives.
struct PartBytes {
  std::span<const std::byte> bytes;
  MemoryKind memory = MemoryKind::kHost;
  const ReadyEvent* ready = nullptr;  // from then on a device may read them; null: now
};

namespace internal {
// One cached expert, pinned through this interface; implemented by the cache.
class PinnedExpert {
 public:
  virtual absl::StatusOr<PartBytes> WaitPart(ExpertPart part) = 0;
  virtual bool HasPart(ExpertPart part) const = 0;
  virtual void Unpin() = 0;

 protected:
  ~PinnedExpert() = default;
};
}  // namespace internal

// RAII pin: its bytes stay where they are while it lives. Move-only. Must die before its provider.
class ExpertHandle {
 public:
  ExpertHandle() = default;
  explicit ExpertHandle(internal::PinnedExpert* pinned) : pinned_(pinned) {}
  ~ExpertHandle() { Reset(); }
  ExpertHandle(ExpertHandle&& other) noexcept : pinned_(std::exchange(other.pinned_, nullptr)) {}
  ExpertHandle& operator=(ExpertHandle&& other) noexcept {
    if (this != &other) {
      Reset();
      pinned_ = std::exchange(other.pinned_, nullptr);
    }
    return *this;
  }
  // The packed matrix of one part; waits until it is read and its checksum was right, not for `ready`. DATA_LOSS or the read's
  // error otherwise.
  absl::StatusOr<PartBytes> Part(ExpertPart part) const { return pinned_->WaitPart(part); }
  // Whether Part(part) would return at once.
  bool Has(ExpertPart part) const { return pinned_->HasPart(part); }
  void Reset() {
    if (pinned_ != nullptr) std::exchange(pinned_, nullptr)->Unpin();
  }

 private:
  internal::PinnedExpert* pinned_ = nullptr;
};

// Of a step of more tokens nothing is handed out for the processor.
inline constexpr int kMostTokensOfProcessor = 8;

struct ReadyExpert {
  int32_t expert = 0;
  Precision precision = kReferencePrecision;  // what the fidelity rule decided
  absl::Status status;                        // not OK: no handle
  bool on_processor = false;                  // its parts are in the host's memory, for its processor to compute with
  ExpertHandle handle;
};

// Cumulative since the sequence started. A lookup = one distinct expert of one layer in one step, as far as this sequence's
// tokens chose it.
struct SequenceCounters {
  uint64_t hits = 0;
  uint64_t misses = 0;       // in flight counted here as well
  uint64_t bytes_read = 0;   // demand reads that this sequence's tokens caused (shared ones are counted for one sequence)
  double stall_seconds = 0;  // waits of steps this sequence took part in
  uint64_t lowered = 0;
  uint64_t skipped = 0;
  uint64_t masked = 0;         // choices of single tokens
  double gate_mass_lost = 0;   // shares of tokens' gate mass that were lowered, skipped or masked, over all layers
  uint64_t routed_tokens = 0;  // tokens times layers: gate_mass_lost / routed_tokens is what one lost in a layer
};

// Where the parts of every expert lie at the reference precision, in memory that the backend reads, itself in such memory: [layer
// with experts][part][expert]. Null: the model has no such part.
using ExpertTable = std::span<const std::byte* const>;

// Memory for the activations of steps that are larger than what the model has memory of its own for.
class ActivationLender {
 public:
  virtual ~ActivationLender() = default;
  // Between steps, from the thread of the steps: memory for `bytes` of the next step's activations, at least as long as until the
  // next call; none for 0, which gives back what was lent, and is called every second while there are no steps, too. The error of
  // an allocation that the kernel refused.
  virtual absl::StatusOr<std::span<std::byte>> Lend(uint64_t bytes) = 0;
};

// Hooks, Begin and Next from one thread (the engine's); sequence_counters from any.
class ExpertProvider {
 public:
  virtual ~ExpertProvider() = default;

  // Out of the memory that experts have otherwise; null: nothing is lent.
  virtual ActivationLender* lender() { return nullptr; }

  // Hooks for policies and predictors; cheap.
  virtual void OnSequenceStart(SequenceId sequence) = 0;
  virtual void OnSequenceEnd(SequenceId sequence) = 0;
  virtual void OnSequencePause(SequenceId /*sequence*/) {}  // it is kept, and nothing of it runs until its next token
  virtual void OnToken(SequenceId sequence, TokenId token) = 0;
  // The gate's input (hidden) of `layer`, before its Begin: of the last token of each sequence in the step, then of every token.
  virtual void OnGateInput(SequenceId sequence, LayerId layer, std::span<const float> hidden) = 0;
  virtual void OnTokenGateInput(SequenceId sequence, LayerId layer, std::span<const float> hidden) = 0;
  // A preview: what the gate of `next` would read if nothing came before it in its layer, which is its norm of what the layer
  // before left. Of layers with experts that follow one, on the processor's backends, and where it is wanted now: of the last
  // token of each sequence, then OnPreviewed.
  virtual bool WantsPreview() { return false; }
  virtual void OnGatePreview(SequenceId /*sequence*/, LayerId /*next*/, std::span<const float> /*hidden*/) {}
  virtual void OnPreviewed() {}
  // Whether MaskRouter is to be called: a layer's logits then come to the host before anything is chosen, which costs a wait.
  virtual bool masks_router() const = 0;
  // For every token: the gate's input (hidden) and its logits (experts), of which the mask may set some to minus infinity.
  // `token` has the choices of the router without a mask; gets what was masked.
  virtual void MaskRouter(LayerId layer, std::span<const float> hidden, std::span<float> logits, TokenRouting& token) = 0;

  // One layer at a time: Begin, then Next until it is empty. Spans need to live until then.
  virtual void Begin(const LayerRouting& routing) = 0;
  virtual std::optional<ReadyExpert> Next() = 0;
  // The same without waiting: nothing when none is ready now.
  virtual std::optional<ReadyExpert> NextReady() = 0;

  // A step that needs no host in its middle. Before its layers, in place of any Begin: where all experts lie until this provider
  // is called again, where the backend reads them best; nothing where one does not. The step told how it runs; one that was
  // kWhole then tells of every layer what was routed, computed already.
  virtual ExpertTable WhereAllLie() { return {}; }
  virtual void OnStep(StepWay /*way*/) {}
  virtual void OnComputed(const LayerRouting& /*routing*/) {}

  // What the host's processor took for the experts of a group that was handed out for it: their bytes, and the most tokens of
  // one.
  virtual void OnProcessorComputed(uint64_t /*bytes*/, int /*tokens*/, double /*seconds*/) {}

  virtual SequenceCounters sequence_counters(SequenceId sequence) const = 0;
};

}  // namespace moed
