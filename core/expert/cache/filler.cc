#include "core/expert/cache/filler.h"

#include <algorithm>
#include <utility>

namespace moed {

std::optional<CachedKey> Filler::Next(const Slots& slots) {
  while (next_ < order_.size() && slots.Find(order_[next_]) != nullptr) ++next_;
  if (over()) return std::nullopt;
  return order_[next_];
}

void Filler::Begun(Slot& slot) {
  ++next_;
  slot.unused_fill = true;
  reading_ = &slot;
  unused_.push_back(&slot);
}

void Filler::Forget(Slot& slot) {
  slot.unused_fill = false;
  std::erase(unused_, &slot);
  Arrived(slot);
}

std::vector<Slot*> Filler::TakeKnown() {
  if (next_ < known_ || std::exchange(known_, 0) == 0) return {};
  std::vector<Slot*> taken = std::exchange(unused_, {});
  std::ranges::reverse(taken);
  for (Slot* slot : taken) slot->unused_fill = false;
  return taken;
}

Slot* Filler::LastUnused(absl::FunctionRef<bool(const Slot&)> evictable) const {
  const auto last = std::find_if(unused_.rbegin(), unused_.rend(), [&](const Slot* slot) { return evictable(*slot); });
  return last == unused_.rend() ? nullptr : *last;
}

}  // namespace moed
