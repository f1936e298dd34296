// Which resident leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/base/ids.h"
#include "core/expert/incoming.h"
#include "core/expert/routing.h"

namespace moed {

class LearnedState;

struct AccessContext {
  SequenceId sequence;
  float probability = 0;  // highest gate weight among this sequence's tokens
  int rank = 0;           // best slot among them, 0 = highest probability
  Phase phase = Phase::kDecode;
  bool hit = false;
  int tokens = 1;  // of this sequence that chose it in this step
};

// Ranks residents; owns no bytes and no locks. Called under the cache's lock, must not call back. What was read to fill free room
// is free room to it until its first use, which is its insertion.
// Statistics of a sequence live with the sequence; starting one never touches another's.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual void OnSequenceStart(SequenceId) {}
  virtual void OnSequenceEnd(SequenceId) {}
  virtual void OnSequencePause(SequenceId) {}  // nothing of it runs until its next token
  virtual void OnToken(SequenceId, TokenId) {}
  // What the router chose in a layer, after its OnAccess calls: first Learn, which the engine's thread calls without the cache's
  // lock and which touches nothing that inserting and evicting need; then OnRouted.
  virtual void Learn(const LayerRouting&) {}
  virtual void OnRouted(const LayerRouting&) {}
  virtual void OnAccess(CachedKey key, const AccessContext& context) = 0;  // key may be absent
  virtual void OnInsert(CachedKey key, uint64_t bytes) = 0;
  virtual void OnEvict(CachedKey key) = 0;
  // Who leaves for `incoming`; nullopt = do not admit (used once from a bypass slot). Only keys for which `evictable` holds.
  virtual std::optional<CachedKey> Victim(const Incoming& incoming, absl::FunctionRef<bool(CachedKey)> evictable) = 0;
  // Whom it would rather have than the one who would leave, and who is at least so likely to be wanted soon: worth a read while
  // nothing else is read. Only keys for which `absent` holds; who leaves is one for whom `evictable` does. nullopt: nobody, and
  // of a policy that ranks residents alone.
  virtual std::optional<CachedKey> Wish(LayerId /*current*/, float /*least_probability*/,
                                        absl::FunctionRef<bool(CachedKey)> /*absent*/,
                                        absl::FunctionRef<bool(CachedKey)> /*evictable*/) {
    return std::nullopt;
  }
  // The cache holds so many bytes from now on; residents beyond them leave next. An error, and then nothing has happened, where
  // what was planned for another size cannot be changed.
  virtual absl::Status SetCapacity(uint64_t /*bytes*/) { return absl::OkStatus(); }
  // How popular the experts of a layer are, on a scale of all layers; left alone where nothing is known.
  virtual void Popularity(LayerId, std::span<float> /*of_experts*/) const {}
  // Shows what is worth keeping for the next start of the daemon (learned_state.h). Overwritten before the first sequence only.
  virtual void VisitLearned(LearnedState&) {}
  virtual size_t memory_bytes() const { return 0; }  // beyond a few words an expert: no more than its row says
};

}  // namespace moed
