#include "core/expert/cache/layer_turn.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace moed {

void LayerTurn::Begin(LayerId layer, Phase phase, std::span<const SequenceId> sequences) {
  MOED_CHECK(left() == 0 && waiting_.empty() && ready_.empty());
  ++number_;
  layer_ = layer;
  phase_ = phase;
  sequences_.assign(sequences.begin(), sequences.end());
  items_.clear();
  handed_out_ = 0;
}

int LayerTurn::Add(Item item) {
  items_.push_back(std::move(item));
  return static_cast<int>(items_.size()) - 1;
}

void LayerTurn::Hold(int number, Slot& slot) {
  ++slot.pins;
  slot.wanted_at = number_;
  items_[number].slot = &slot;
  if (slot.arrived & 1) {
    Ready(number);
  } else {
    slot.item = number;
  }
}

void LayerTurn::MostTokensWaitFirst() {
  std::stable_sort(waiting_.begin(), waiting_.end(), [this](int a, int b) { return items_[a].tokens > items_[b].tokens; });
}

LayerTurn::Item& LayerTurn::TakeReady() {
  Item& item = items_[ready_.front()];
  ready_.pop_front();
  ++handed_out_;
  return item;
}

}  // namespace moed
