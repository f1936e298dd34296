#include "core/model/kv_pool.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/model/scratch.h"

namespace moed {
namespace {

constexpr uint64_t kSlotAlignment = 64;

// Keys and values of page_tokens positions, or their latents.
uint64_t LayerPageBytes(const ModelSpec& spec, LayerId layer, KvFormat format, int page_tokens) {
  if (!spec.KeepsKeys(layer)) return 0;
  if (spec.latent) return int64_t{page_tokens} * LatentRowBytes(format, spec.latent->kv_rank, spec.rotary_dims);
  const HeadShape heads = spec.HeadsOf(layer);
  return uint64_t{2} * page_tokens * heads.kv_heads * KvRowBytes(format, heads.head_dim);
}

// Pages that hold what a window sees from any position on while a block of rows is written behind it.
int RingPages(int window, int max_context, int page_tokens) {
  const int64_t positions = int64_t{window} - 1 + kBlockRows;
  const int64_t pages = (positions + page_tokens - 2) / page_tokens + 1;  // wherever in a page they begin
  return static_cast<int>(std::min<int64_t>(pages, KvPool::PagesFor(max_context, page_tokens)));
}

bool InSlots(const ModelSpec& spec, LayerId layer) { return spec.WindowOf(layer) > 0 || spec.StateBytes(layer) > 0; }

// What a layer takes of a slot.
uint64_t LayerSlotBytes(const ModelSpec& spec, LayerId layer, int max_context, KvFormat format, int page_tokens) {
  const uint64_t state = spec.StateBytes(layer);
  const int window = spec.WindowOf(layer);
  const uint64_t ring = state > 0 || window == 0
                            ? 0
                            : RingPages(window, max_context, page_tokens) * LayerPageBytes(spec, layer, format, page_tokens);
  return RoundUp(state + ring, kSlotAlignment);
}

int MaxContext(const KvPoolSizes& sizes) {
  const int64_t all = int64_t{sizes.pages} * sizes.page_tokens;
  return static_cast<int>(std::min<int64_t>(sizes.max_context > 0 ? sizes.max_context : INT32_MAX, all));
}

// What is written from there on is no part of what the page's label stands for.
bool BehindSource(const KvSequence& sequence, int position) {
  const int source = std::max(sequence.source, sequence.prefix);
  return source > 0 && position >= source;
}

}  // namespace

uint64_t KvPool::PageBytes(const ModelSpec& spec, KvFormat format, int page_tokens) {
  uint64_t bytes = 0;
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (!InSlots(spec, LayerId(layer))) bytes += LayerPageBytes(spec, LayerId(layer), format, page_tokens);
  }
  return bytes;
}

uint64_t KvPool::SlotBytes(const ModelSpec& spec, int max_context, KvFormat format, int page_tokens) {
  uint64_t bytes = 0;
  for (int layer = 0; layer < spec.layers; ++layer) {
    bytes += LayerSlotBytes(spec, LayerId(layer), max_context, format, page_tokens);
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::Create(const ModelSpec& spec, const KvPoolSizes& sizes, BackendMemory& memory) {
  if (sizes.pages < 1) return InvalidArgument("a KV pool of ", sizes.pages, " pages; at least one is needed");
  const uint64_t page_bytes = PageBytes(spec, sizes.format, sizes.page_tokens);
  const uint64_t slot_bytes = SlotBytes(spec, MaxContext(sizes), sizes.format, sizes.page_tokens);
  if (slot_bytes > 0 && sizes.slots < 1) {
    return InvalidArgument("a KV pool of ", sizes.slots, " slots; at least one is needed");
  }
  const auto fits = [](int count, uint64_t bytes) { return bytes == 0 || static_cast<uint64_t>(count) <= SIZE_MAX / 4 / bytes; };
  if (!fits(sizes.pages, page_bytes) || !fits(sizes.slots, slot_bytes)) {
    return ResourceExhausted("a KV pool of ", sizes.pages, " pages of ", page_bytes, " bytes and ", sizes.slots, " slots of ",
                             slot_bytes, " bytes does not fit the address space");
  }
  MOED_ASSIGN_OR_RETURN(Buffer buffer, memory.working().Allocate(page_bytes * sizes.pages + slot_bytes * sizes.slots));
  return std::unique_ptr<KvPool>(new KvPool(spec, sizes, memory, std::move(buffer)));
}

KvPool::KvPool(const ModelSpec& spec, const KvPoolSizes& sizes, BackendMemory& memory, Buffer buffer)
    : memory_(memory),
      buffer_(std::move(buffer)),
      pages_(sizes.pages),
      max_context_(MaxContext(sizes)),
      format_(sizes.format),
      page_tokens_(sizes.page_tokens),
      page_bytes_(PageBytes(spec, format_, page_tokens_)),
      slot_bytes_(SlotBytes(spec, max_context_, format_, page_tokens_)) {
  slots_ = slot_bytes_ > 0 ? sizes.slots : 0;
  uint64_t in_page = 0, in_slot = 0;
  for (int i = 0; i < spec.layers; ++i) {
    const LayerId layer(i);
    Place& place = layers_.emplace_back();
    place.page_bytes = LayerPageBytes(spec, layer, format_, page_tokens_);
    place.has_state = spec.StateBytes(layer) > 0;
    place.window = place.has_state ? 0 : spec.WindowOf(layer);
    if (place.window > 0) place.ring_pages = RingPages(place.window, max_context_, page_tokens_);
    uint64_t& used = InSlots(spec, layer) ? in_slot : in_page;
    place.offset = used;
    used += InSlots(spec, layer) ? LayerSlotBytes(spec, layer, max_context_, format_, page_tokens_) : place.page_bytes;
  }
  // The lowest go first.
  pages_state_.resize(static_cast<size_t>(pages_) + 1);
  pages_state_[pages_].next = pages_state_[pages_].previous = pages_;
  for (int32_t page = 0; page < pages_; ++page) Link(page, pages_);
  free_slots_.resize(slots_);
  slot_labels_.resize(slots_);
  std::iota(free_slots_.begin(), free_slots_.end(), 0);
}

bool KvPool::Reserve(KvSequence& sequence, int positions) {
  const int missing = PagesFor(positions, page_tokens_) - static_cast<int>(sequence.pages.size());
  const bool needs_slot = slots_ > 0 && sequence.slot < 0;
  if (missing > free_pages() || (needs_slot && free_slots_.empty())) return false;
  MOED_CHECK(positions <= max_context_ || slots_ == 0);  // the rings are not longer than that
  MOED_CHECK(!Lost(sequence));
  for (int i = 0; i < missing; ++i) sequence.pages.push_back(TakeFree());
  if (needs_slot) sequence.slot = TakeFreeSlot();
  return true;
}

void KvPool::Release(KvSequence& sequence) {
  for (auto page = sequence.pages.rbegin(); page != sequence.pages.rend(); ++page) Drop(*page);
  if (sequence.slot >= 0) GiveBackSlot(sequence, 0);
  sequence.pages.clear();
  sequence.length = sequence.reached = sequence.source = sequence.prefix = 0;
}

int KvPool::KeptOf(const KvSequence& sequence, int length) const {
  const size_t page = length / page_tokens_;
  const int in_page = length % page_tokens_;
  const bool shared = in_page > 0 && page < sequence.pages.size() && HoldersOf(sequence.pages[page]) > 1;
  return shared ? length - in_page : length;
}

void KvPool::CutBack(KvSequence& sequence, int length, int reached) {
  length = KeptOf(sequence, length);
  sequence.reached = std::max(sequence.reached, reached);
  if (sequence.slot >= 0 && !Intact(length, sequence.reached)) GiveBackSlot(sequence, 0);
  const size_t pages = PagesFor(length, page_tokens_);
  for (; sequence.pages.size() > pages; sequence.pages.pop_back()) Drop(sequence.pages.back());
  if (length % page_tokens_ > 0 && (slots_ == 0 || sequence.slot >= 0) && !BehindSource(sequence, length)) {
    const int32_t last = sequence.pages.back();
    if (LabelOf(last) != 0) Unlabel(last);  // it will be written to
  }
  sequence.length = length;
  if (length == 0) sequence.source = sequence.prefix = 0;
}

void KvPool::Label(int32_t page, uint64_t label) {
  MOED_CHECK(label != 0 && HoldersOf(page) > 0);
  pages_state_[page].label = label;
}

void KvPool::Unlabel(int32_t page) {
  const bool free = HoldersOf(page) == 0;
  if (free) Unlink(page);
  pages_state_[page].label = 0;
  if (free) Link(page, pages_state_[pages_].next);
}

int32_t KvPool::FirstRemembered() const {
  int32_t page = pages_state_[pages_].next;
  while (page != pages_ && LabelOf(page) == 0) page = pages_state_[page].next;
  return page;
}

void KvPool::VisitRemembered(absl::FunctionRef<void(int32_t page)> visit) const {
  for (int32_t page = FirstRemembered(); page != pages_; page = pages_state_[page].next) visit(page);
}

void KvPool::GoFirst(std::span<const int32_t> pages) {
  int32_t before = FirstRemembered();
  for (const int32_t page : pages) {
    MOED_CHECK(LabelOf(page) != 0 && HoldersOf(page) == 0);
    if (page == before) {
      before = pages_state_[page].next;
      continue;
    }
    Unlink(page);
    Link(page, before);
  }
}

void KvPool::Share(KvSequence& sequence, int first, std::span<const int32_t> pages) {
  MOED_CHECK(first <= sequence.length / page_tokens_);
  for (const int32_t page : pages) Hold(page);  // before those that go: one page may be both
  for (; static_cast<int>(sequence.pages.size()) > first; sequence.pages.pop_back()) Drop(sequence.pages.back());
  sequence.pages.insert(sequence.pages.end(), pages.begin(), pages.end());
  sequence.length = static_cast<int>(sequence.pages.size()) * page_tokens_;
}

void KvPool::Adopt(KvSequence& sequence, int32_t page, int positions) {
  MOED_CHECK(HoldersOf(page) == 0 && sequence.length == static_cast<int>(sequence.pages.size()) * page_tokens_);
  Hold(page);
  Unlabel(page);
  sequence.pages.push_back(page);
  sequence.length += positions;
}

bool KvPool::AdoptCopy(KvSequence& sequence, int32_t page, int positions) {
  Hold(page);  // it is not the one that is taken
  const bool room = free_pages() > 0;
  if (room) {
    sequence.pages.push_back(TakeFree());
    sequence.length += positions;
    memory_.Copy(PageBegin(sequence.pages.back()), PageBegin(page), page_bytes_);
  }
  Drop(page);
  return room;
}

int32_t KvPool::SaveState(const KvSequence& sequence, uint64_t label) {
  MOED_CHECK(label != 0 && sequence.slot >= 0);
  if (free_slots_.empty()) return -1;
  const int32_t slot = TakeFreeSlot();
  memory_.Copy(SlotBegin(slot), SlotBegin(sequence.slot), slot_bytes_);
  slot_labels_[slot] = label;
  free_slots_.push_back(slot);
  return slot;
}

int32_t KvPool::LeaveState(KvSequence& sequence, uint64_t label) {
  MOED_CHECK(label != 0 && sequence.slot >= 0);
  const int32_t slot = sequence.slot;
  GiveBackSlot(sequence, label);
  return slot;
}

void KvPool::ForgetState(int32_t slot) {
  MOED_CHECK(StateLabelOf(slot) != 0);
  slot_labels_[slot] = 0;
  std::erase(free_slots_, slot);
  free_slots_.insert(free_slots_.begin(), slot);
}

void KvPool::TouchState(int32_t slot) {
  MOED_CHECK(StateLabelOf(slot) != 0);
  std::erase(free_slots_, slot);
  free_slots_.push_back(slot);
}

void KvPool::TakeState(KvSequence& sequence, int32_t slot, int reached, bool last) {
  MOED_CHECK(StateLabelOf(slot) != 0);
  if (last || (sequence.slot < 0 && free_slots() == 1)) {
    if (sequence.slot >= 0) GiveBackSlot(sequence, 0);
    std::erase(free_slots_, slot);
    slot_labels_[slot] = 0;
    sequence.slot = slot;
  } else {
    TouchState(slot);
    if (sequence.slot < 0) sequence.slot = TakeFreeSlot();
    memory_.Copy(SlotBegin(sequence.slot), SlotBegin(slot), slot_bytes_);
  }
  sequence.reached = reached;
}

int KvPool::remembered_slots() const {
  return static_cast<int>(std::count_if(slot_labels_.begin(), slot_labels_.end(), [](uint64_t label) { return label != 0; }));
}

int32_t KvPool::TakeFreeSlot() {
  const int32_t slot = free_slots_.front();
  free_slots_.erase(free_slots_.begin());
  slot_labels_[slot] = 0;
  return slot;
}

void KvPool::GiveBackSlot(KvSequence& sequence, uint64_t label) {
  slot_labels_[sequence.slot] = label;
  free_slots_.insert(label != 0 ? free_slots_.end() : free_slots_.begin(), sequence.slot);
  sequence.slot = -1;
  sequence.reached = 0;
}

int32_t KvPool::TakeFree() {
  const int32_t page = pages_state_[pages_].next;
  Unlink(page);
  pages_state_[page].label = 0;
  pages_state_[page].holders = 1;
  return page;
}

void KvPool::Hold(int32_t page) {
  MOED_CHECK(LabelOf(page) != 0);
  if (HoldersOf(page) == 0) {
    Unlink(page);
  } else {
    ++shared_holds_;
  }
  ++pages_state_[page].holders;
}

void KvPool::Drop(int32_t page) {
  if (--pages_state_[page].holders > 0) {
    --shared_holds_;
  } else {
    Link(page, LabelOf(page) != 0 ? pages_ : pages_state_[pages_].next);
  }
}

void KvPool::Link(int32_t page, int32_t before) {
  PageState& state = pages_state_[page];
  state.next = before;
  state.previous = pages_state_[before].previous;
  pages_state_[state.previous].next = pages_state_[before].previous = page;
  ++free_pages_;
  if (state.label != 0) ++remembered_pages_;
}

void KvPool::Unlink(int32_t page) {
  const PageState& state = pages_state_[page];
  pages_state_[state.previous].next = state.next;
  pages_state_[state.next].previous = state.previous;
  --free_pages_;
  if (state.label != 0) --remembered_pages_;
}

bool KvPool::CanCutBack(const KvSequence& sequence, int length, int reached) const {
  return Intact(KeptOf(sequence, length), std::max(sequence.reached, reached));
}

// A ring has the last of its pages that were written, whichever of them are forgotten now.
bool KvPool::Intact(int length, int reached) const {
  if (length >= reached || slots_ == 0) return true;
  return std::none_of(layers_.begin(), layers_.end(), [&](const Place& place) {
    if (place.ring_pages == 0) return place.has_state;
    const int first_seen = std::max(0, length + 1 - place.window) / page_tokens_;
    return first_seen + place.ring_pages <= (reached - 1) / page_tokens_;
  });
}

std::byte* KvPool::InSlot(const KvSequence& sequence, const Place& place) const {
  MOED_CHECK(sequence.slot >= 0);
  return SlotBegin(sequence.slot) + place.offset;
}

std::byte* KvPool::PageOf(const KvSequence& sequence, int page, LayerId layer) const {
  const Place& place = layers_[layer.value()];
  if (place.ring_pages > 0) return InSlot(sequence, place) + place.page_bytes * (page % place.ring_pages);
  return PageBegin(sequence.pages[page]) + place.offset;
}

std::byte* KvPool::State(const KvSequence& sequence, LayerId layer) const {
  const Place& place = layers_[layer.value()];
  MOED_CHECK(place.has_state);
  return InSlot(sequence, place);
}

}  // namespace moed
