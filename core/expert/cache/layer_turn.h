// The layer that is being computed: what it wants, what of that waits for room, what is ready to be handed out.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "core/base/ids.h"
#include "core/expert/cache/slot.h"
#include "core/expert/routing.h"

namespace moed {

// An item is one wanted expert. It waits without a slot, or holds one pinned whose first read is awaited (Slot::item), or is
// ready, then handed out. Items are numbered in the order in which they were added. Not synchronised.
class LayerTurn {
 public:
  struct Item {
    CachedKey key;
    Slot* slot = nullptr;  // pinned for this item; null while it waits and when it failed
    absl::Status status;
    SequenceId sequence;      // whom the read is charged to
    uint64_t read_bytes = 0;  // of the demand read that this item caused
    int tokens = 0;           // that wanted it; 0: nobody, the layer is read whole
  };

  // The layer before was handed out whole.
  void Begin(LayerId layer, Phase phase, std::span<const SequenceId> sequences);
  uint64_t number() const { return number_; }  // of layers begun
  LayerId layer() const { return layer_; }
  Phase phase() const { return phase_; }
  std::span<const SequenceId> sequences() const { return sequences_; }  // of the step, without those that have ended
  void EndSequence(SequenceId sequence) { std::erase(sequences_, sequence); }

  int Add(Item item);
  Item& item(int number) { return items_[number]; }
  // Its slot, pinned: ready when the first read is there, else once it has come.
  void Hold(int number, Slot& slot);

  void Wait(int number) { waiting_.push_back(number); }
  void WaitFirst(int number) { waiting_.push_front(number); }
  void MostTokensWaitFirst();
  bool waiting() const { return !waiting_.empty(); }
  int FirstWaiting() const { return waiting_.front(); }
  void PopWaiting() { waiting_.pop_front(); }

  void Ready(int number) { ready_.push_back(number); }
  bool any_ready() const { return !ready_.empty(); }
  // In order of arrival. It is handed out.
  Item& TakeReady();
  size_t left() const { return items_.size() - handed_out_; }

  size_t memory_bytes() const { return items_.capacity() * sizeof(Item); }

 private:
  uint64_t number_ = 0;
  LayerId layer_;
  Phase phase_ = Phase::kPrefill;
  std::vector<SequenceId> sequences_;
  std::vector<Item> items_;
  std::deque<int> waiting_;
  std::deque<int> ready_;
  size_t handed_out_ = 0;
};

}  // namespace moed
