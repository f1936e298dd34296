// Dense numbers for the keys of a store, so that tables over experts are plain arrays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "core/base/ids.h"

namespace moed {

// Of an enumerator that numbers the elements of an array.
template <class Enum>
constexpr size_t EnumIndex(Enum value) {
  return static_cast<size_t>(value);
}

// Order: [MoE layer][expert][precision]. Immutable.
class ExpertIndex {
 public:
  // The first `encoder_positions` MoE layers are an encoder's, which a request runs once: a token passes the others.
  ExpertIndex(std::span<const LayerId> moe_layers, int experts_per_layer, int precisions, int encoder_positions = 0)
      : layers_(moe_layers.begin(), moe_layers.end()),
        experts_(experts_per_layer),
        precisions_(precisions),
        encoder_positions_(encoder_positions) {
    MOED_CHECK(std::is_sorted(layers_.begin(), layers_.end()));
    position_.assign(layers_.empty() ? 0 : layers_.back().value() + 1, -1);
    for (size_t i = 0; i < layers_.size(); ++i) position_[layers_[i].value()] = static_cast<int32_t>(i);
  }

  int layers() const { return static_cast<int>(layers_.size()); }
  int experts_per_layer() const { return experts_; }
  int precisions() const { return precisions_; }
  size_t size() const { return layers_.size() * experts_ * precisions_; }

  LayerId Layer(int position) const { return layers_[position]; }
  // Among the MoE layers, from 0. A dense layer is a broken invariant of the caller.
  int Position(LayerId layer) const {
    MOED_CHECK(layer.value() >= 0 && static_cast<size_t>(layer.value()) < position_.size());
    const int32_t position = position_[layer.value()];
    MOED_CHECK(position >= 0);
    return position;
  }
  int encoder_positions() const { return encoder_positions_; }
  int token_layers() const { return layers() - encoder_positions_; }  // MoE layers that a token of an answer passes
  // MoE layers from one position on to another, 1 for the next one: among a token's layers wrapping into the next token, else
  // into the next request.
  int Distance(int from, int to) const {
    if (to > from) return to - from;
    return to - from + (to < encoder_positions_ ? layers() : token_layers());
  }

  size_t Of(const CachedKey& key) const {
    MOED_CHECK(key.expert >= 0 && key.expert < experts_ && key.precision < precisions_);
    return (static_cast<size_t>(Position(key.layer)) * experts_ + key.expert) * precisions_ + key.precision;
  }
  CachedKey KeyAt(size_t index) const {
    const size_t record = index / precisions_;
    return {layers_[record / experts_], static_cast<int32_t>(record % experts_), static_cast<Precision>(index % precisions_)};
  }
  // Of a key, whatever its precision: its expert among those of all layers, its layer's position. A table for loops over keys,
  // where divisions would cost more than what is looked up with them.
  struct Place {
    uint32_t expert;
    uint32_t layer;
  };
  std::vector<Place> Places() const {
    std::vector<Place> places;
    places.reserve(size());
    for (size_t i = 0; i < size(); ++i) {
      const size_t expert = i / precisions_;
      places.push_back({static_cast<uint32_t>(expert), static_cast<uint32_t>(expert / experts_)});
    }
    return places;
  }
  // Nothing for an index beyond the last, as KeyLists::kNone is.
  std::optional<CachedKey> KeyIfAny(size_t index) const {
    if (index >= size()) return std::nullopt;
    return KeyAt(index);
  }

 private:
  std::vector<LayerId> layers_;
  std::vector<int32_t> position_;  // by layer id, -1 for dense
  int experts_;
  int precisions_;
  int encoder_positions_;
};

}  // namespace moed
