// What sequences hold in memory, carved from one buffer. A layer that sees all positions keeps their keys and values in pages of
// a fixed number of positions, which grow in number with the sequence. What the other layers keep does not grow and lies in a
// slot:
//   a layer with a window  a ring of pages: page p of the sequence is page p mod the ring's length
//   a layer with a state   the state
// An encoder's layers keep nothing; while they run, the pages of the first layer that does hold their keys and values.
// Several sequences may hold a page that is full, and then none of them writes to it. What is given back with a label, a page or
// a slot, keeps what it holds until it is given out again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/kernels/backend_memory.h"
#include "core/kernels/kv_rows.h"
#include "core/model/spec.h"

namespace moed {

// What one sequence holds. Plain data; the pool hands it out.
struct KvSequence {
  std::vector<int32_t> pages;
  int32_t slot = -1;  // -1: none
  int length = 0;     // positions written
  int reached = 0;    // positions that were written before the last CutBack; the slot's rings have seen them
  int source = 0;     // of an encoder-decoder's positions, those of the source, the first: what the decoder attends to of it
  int prefix = 0;     // of a prefix-LM's positions, those that see each other, the first
  bool holds_memory() const { return !pages.empty() || slot >= 0; }
};

struct KvPoolSizes {
  int pages = 0;
  int slots = 1;        // sequences that hold memory at once, where the model needs slots
  int max_context = 0;  // positions of a sequence at most; 0: as many as all pages hold
  KvFormat format = KvFormat::kF32;
  int page_tokens = kKvPageTokens;
};

// Hands out pages and slots and says where they are; the operations of ComputeBackend fill them. Engine thread only.
class KvPool {
 public:
  static uint64_t PageBytes(const ModelSpec& spec, KvFormat format = KvFormat::kF32, int page_tokens = kKvPageTokens);
  // 0: all layers see all positions, and sequences need no slots.
  static uint64_t SlotBytes(const ModelSpec& spec, int max_context, KvFormat format = KvFormat::kF32,
                            int page_tokens = kKvPageTokens);
  // Allocates pages * PageBytes and, for max_context, slots * SlotBytes, of the memory of the backend whose operations fill them.
  // INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(const ModelSpec& spec, const KvPoolSizes& sizes,
                                                        BackendMemory& memory = BackendMemory::Host());
  BackendMemory& memory() const { return memory_; }

  KvFormat format() const { return format_; }
  int page_tokens() const { return page_tokens_; }
  int max_context() const { return max_context_; }
  uint64_t page_bytes() const { return page_bytes_; }
  uint64_t slot_bytes() const { return slot_bytes_; }

  int pages() const { return pages_; }
  int free_pages() const { return free_pages_; }                           // held by no sequence
  int remembered_pages() const { return remembered_pages_; }               // of those, with a label
  int slots() const { return slots_; }                                     // 0: sequences need none
  int free_slots() const { return static_cast<int>(free_slots_.size()); }  // held by no sequence
  int remembered_slots() const;                                            // of those, with a label
  static int PagesFor(int positions, int page_tokens = kKvPageTokens) { return (positions + page_tokens - 1) / page_tokens; }

  // Grows `sequence` to hold `positions` (<= max_context), and gives it a slot if it needs one; false (and unchanged) when too
  // few pages or no slot is free.
  bool Reserve(KvSequence& sequence, int positions);
  void Release(KvSequence& sequence);  // gives everything back; length becomes 0
  // Positions from `length` on, which were written up to `reached`, are forgotten, and pages beyond are given back. Where another
  // sequence holds the page that `length` lies in its positions are forgotten, too. Where the slot no longer has what position
  // `length` needs it is given back (Lost). So it is with every state that went further than `length`.
  void CutBack(KvSequence& sequence, int length, int reached);
  // Whether CutBack would leave the sequence its slot.
  bool CanCutBack(const KvSequence& sequence, int length, int reached) const;
  // It has pages, and no slot to go on with: to be released.
  bool Lost(const KvSequence& sequence) const { return slots_ > 0 && sequence.slot < 0 && sequence.length > 0; }

  // A page that a sequence holds, and will not write to but behind its source, gets a label, not 0. It loses it if it may be
  // written.
  void Label(int32_t page, uint64_t label);
  uint64_t LabelOf(int32_t page) const { return pages_state_[page].label; }
  void Unlabel(int32_t page);
  // Those that nobody holds, in the order in which they go.
  void VisitRemembered(absl::FunctionRef<void(int32_t page)> visit) const;
  // Some of them go before the others with labels, in this order.
  void GoFirst(std::span<const int32_t> pages);
  int HoldersOf(int32_t page) const { return pages_state_[page].holders; }
  int shared_holds() const { return shared_holds_; }  // of all pages, the holders beyond the first
  // The pages with labels take the place of those that the sequence holds from its page `first` on (<= length / page_tokens). Its
  // length is then their end. Where sequences need slots it goes on only after TakeState.
  void Share(KvSequence& sequence, int first, std::span<const int32_t> pages);
  // A page with a label that nobody holds becomes the sequence's next one, to be written to; its length grows by what is used of
  // the page. The sequence's pages are full.
  void Adopt(KvSequence& sequence, int32_t page, int positions);
  // The same with a copy of a page with a label; false (and unchanged) when no page but it is free.
  bool AdoptCopy(KvSequence& sequence, int32_t page, int positions);

  // What the sequence's slot holds is copied to a free one, which has the label then: that slot, or -1 when none is free.
  int32_t SaveState(const KvSequence& sequence, uint64_t label);
  // The sequence gives its slot back with a label: that slot.
  int32_t LeaveState(KvSequence& sequence, uint64_t label);
  uint64_t StateLabelOf(int32_t slot) const { return slot_labels_[slot]; }  // 0: a sequence holds it, or nothing is kept there
  void ForgetState(int32_t slot);
  void TouchState(int32_t slot);  // it goes after all others
  // The sequence gets what a slot with a label holds: a copy, or where no other slot is free or it is `last` to want it, the slot
  // itself. `reached`: of the sequence that left it.
  void TakeState(KvSequence& sequence, int32_t slot, int reached, bool last);

  // What page `page` of the sequence holds of a layer that keeps keys and values: see core/kernels/kv_rows.h. Of a layer with a
  // window there are those that the next kBlockRows rows see (core/model/scratch.h).
  std::byte* PageOf(const KvSequence& sequence, int page, LayerId layer) const;
  // All that a page, and a slot, holds: that of every layer.
  std::span<std::byte> PageBytesOf(int32_t page) const { return {PageBegin(page), page_bytes_}; }
  std::span<std::byte> SlotBytesOf(int32_t slot) const { return {SlotBegin(slot), slot_bytes_}; }
  // A layer's state after the sequence's positions, 64-byte aligned. At position 0 it holds anything: who writes it begins there
  // with zeros.
  std::byte* State(const KvSequence& sequence, LayerId layer) const;

 private:
  // Where a layer lies in a page, or in a slot.
  struct Place {
    uint64_t offset = 0;
    uint64_t page_bytes = 0;  // of the layer
    int ring_pages = 0;       // 0: no ring
    int window = 0;
    bool has_state = false;
  };
  KvPool(const ModelSpec& spec, const KvPoolSizes& sizes, BackendMemory& memory, Buffer buffer);
  // Of one page. Those that nobody holds are a ring of links, with one more entry as its begin and end.
  struct PageState {
    uint64_t label = 0;
    int32_t holders = 0;
    int32_t next = 0;
    int32_t previous = 0;
  };
  // What CutBack to `length` leaves: positions of a page that others hold go with those behind them.
  int KeptOf(const KvSequence& sequence, int length) const;
  bool Intact(int length, int reached) const;
  int32_t TakeFree();
  int32_t TakeFreeSlot();
  void GiveBackSlot(KvSequence& sequence, uint64_t label);
  std::byte* SlotBegin(int32_t slot) const { return buffer_.data() + slot * slot_bytes_; }
  std::byte* PageBegin(int32_t page) const { return buffer_.data() + slots_ * slot_bytes_ + page * page_bytes_; }
  void Hold(int32_t page);
  void Drop(int32_t page);
  int32_t FirstRemembered() const;  // pages_: there is none
  void Link(int32_t page, int32_t before);
  void Unlink(int32_t page);
  std::byte* InSlot(const KvSequence& sequence, const Place& place) const;

  BackendMemory& memory_;
  Buffer buffer_;  // slots, then pages
  int pages_;
  int slots_;
  int max_context_;
  KvFormat format_;
  int page_tokens_;
  uint64_t page_bytes_;
  uint64_t slot_bytes_;
  std::vector<Place> layers_;
  // Free pages in the order in which they go: those without a label first, then the label that was given back longest ago.
  std::vector<PageState> pages_state_;
  int free_pages_ = 0;
  int remembered_pages_ = 0;
  int shared_holds_ = 0;
  // In the order in which they go, as the pages.
  std::vector<int32_t> free_slots_;
  std::vector<uint64_t> slot_labels_;  // [slot]
};

}  // namespace moed
