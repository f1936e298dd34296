// Distinct types for the numbers that name things, so that a layer is never passed where an expert is meant.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace moed {

template <class Tag, class Int>
class StrongId {
 public:
  using value_type = Int;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Int value) : value_(value) {}
  constexpr Int value() const { return value_; }

  friend constexpr auto operator<=>(StrongId, StrongId) = default;
  template <class H>
  friend H AbslHashValue(H h, StrongId id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  Int value_ = 0;
};

using LayerId = StrongId<struct LayerTag, int32_t>;  // decoder layer, 0-based, dense layers counted
using TokenId = StrongId<struct TokenTag, int32_t>;  // index into the vocabulary
using SequenceId = StrongId<struct SequenceTag,
                            uint64_t>;  // the tokens of one conversation, or of one request that has none, inside this process
using RequestId = StrongId<struct RequestTag, uint64_t>;  // one call inside this process

// A routed expert of one layer.
struct ExpertKey {
  LayerId layer;
  int32_t expert = 0;
  friend constexpr auto operator<=>(const ExpertKey&, const ExpertKey&) = default;
  template <class H>
  friend H AbslHashValue(H h, const ExpertKey& k) {
    return H::combine(std::move(h), k.layer, k.expert);
  }
};

// Index into the store's list of expert formats; 0 is the reference precision.
using Precision = uint8_t;
inline constexpr Precision kReferencePrecision = 0;

// What the cache holds: one expert at one precision.
struct CachedKey {
  LayerId layer;
  int32_t expert = 0;
  Precision precision = kReferencePrecision;
  constexpr ExpertKey expert_key() const { return {layer, expert}; }
  friend constexpr auto operator<=>(const CachedKey&, const CachedKey&) = default;
  template <class H>
  friend H AbslHashValue(H h, const CachedKey& k) {
    return H::combine(std::move(h), k.layer, k.expert, k.precision);
  }
};

}  // namespace moed
