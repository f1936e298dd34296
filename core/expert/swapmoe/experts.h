// SwapMoE, arXiv 2308.15030, 3.2 and 3.3: the virtual experts of every layer, when they are chosen anew, which loads are due and
// who leaves for them. One object that the preset's mask, predictor and policy share.
//
// Of each layer a set of as many experts as it has slots. Whatever is resident is used; an expert of the set that is not is read
// when its layer's turn in the window has come; what is resident beyond the set leaves when its room is needed, first where a
// layer holds more than its slots. There is one spare slot, so that the expert that is replaced stays until its replacement is
// there.
#pragma once

#include <climits>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/expert/expert_index.h"
#include "core/expert/guess.h"
#include "core/expert/incoming.h"
#include "core/expert/part_context.h"
#include "core/expert/resident_set.h"
#include "core/expert/routing.h"
#include "core/expert/swapmoe/frequency.h"
#include "core/expert/swapmoe/importance.h"

namespace moed {

struct SwapMoeOptions {
  std::vector<int> slots = {};    // by MoE layer
  std::vector<float> norms = {};  // (MoE layers, experts)
  SwapMoeScore score = SwapMoeScore::kMagnitude;
  bool updates = true;  // false: the first set stays
  double fade = 0.5;    // what the importance of one window counts in the next
  SwapMoeFrequencyOptions frequency = {};
  const Clock* clock = nullptr;
};

// Thread-safe: the policy's calls come under the cache's lock from threads that read, all others from the engine's.
class SwapMoeExperts {
 public:
  SwapMoeExperts(const ExpertModelShape& model, SwapMoeOptions options);

  // A token of a layer, before its router's choice. Until OnRouted nothing of this layer leaves for a planned load: what the mask
  // has seen there stays there.
  void OnToken(LayerId layer, Phase phase, std::span<const float> hidden, std::span<const float> logits);
  void OnRouted(LayerId layer);

  // To usable[expert]: 0 for those a token shall do without. Residents are used, whether in the set or not. Until a layer holds
  // as many as its slots for the first time, a prompt's token may also choose what its set still lacks, and waits for it; an
  // answer's does so only where nothing is resident at all.
  void Usable(LayerId layer, Phase phase, absl::FunctionRef<bool(int32_t expert)> resident, std::span<uint8_t> usable);

  // Loads that are due, of the layers after `from` first, this one last; at most `most`.
  void Due(LayerId from, size_t most, std::vector<Guess>& loads);

  void OnAccess(const CachedKey& key);
  void OnInsert(const CachedKey& key);
  void OnEvict(const CachedKey& key);
  std::optional<CachedKey> Victim(const Incoming& incoming, absl::FunctionRef<bool(CachedKey)> evictable);

  size_t memory_bytes() const;
  static size_t Bytes(const ExpertModelShape& model);  // what memory_bytes will be
  int window() const;                                  // tokens

 private:
  struct Step {
    int64_t begun_nanos = 0;
    int tokens = 0;
    bool answers_alone = true;
  };

  size_t First(int layer) const { return static_cast<size_t>(layer) * experts_; }
  std::span<uint8_t> SetOf(int layer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::span(in_set_).subspan(First(layer), experts_);
  }
  void BeginStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ChooseSets() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int Missing(int layer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether its layer has another expert that is certainly there; `expert` of all layers'.
  bool SeenBeside(size_t expert) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TurnHasCome(int layer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t KeyOf(size_t expert) const { return expert * precisions_ + kReferencePrecision; }
  bool Here(size_t expert) const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return residents_.Has(KeyOf(expert)); }

  const ExpertIndex index_;
  const std::vector<ExpertIndex::Place> places_;
  const size_t experts_;
  const int encoder_positions_;
  const size_t precisions_;
  const std::vector<int> slots_;
  const bool updates_;
  const double fade_;
  const Clock& clock_;

  mutable absl::Mutex mutex_;
  SwapMoeImportance importance_ ABSL_GUARDED_BY(mutex_);
  SwapMoeFrequency frequency_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint8_t> in_set_ ABSL_GUARDED_BY(mutex_);  // (layers, experts)
  std::vector<uint8_t> seen_ ABSL_GUARDED_BY(mutex_);    // (layers, experts): resident when the mask last looked, and since
  ResidentSet residents_ ABSL_GUARDED_BY(mutex_);        // or on their way
  std::vector<int> held_ ABSL_GUARDED_BY(mutex_);        // by layer: of residents_
  std::vector<uint8_t> filled_ ABSL_GUARDED_BY(mutex_);  // by layer: had as many residents as slots
  int layers_to_fill_ ABSL_GUARDED_BY(mutex_);
  std::optional<size_t> leaving_ ABSL_GUARDED_BY(mutex_);  // an expert between Victim and OnEvict, which still looks resident
  int routing_ ABSL_GUARDED_BY(mutex_) = -1;               // layer between the mask's look at it and its pins; -1: none
  int last_routed_ ABSL_GUARDED_BY(mutex_) = INT_MAX;      // layer: a step begins with one that is not after it
  int64_t window_tokens_ ABSL_GUARDED_BY(mutex_) = 0;      // since the last update
  Step step_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moed
