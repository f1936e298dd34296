// Free room is filled while nothing else is read: which record next, and what of it nobody has used yet.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/base/ids.h"
#include "core/expert/cache/slots.h"

namespace moed {

// One record at a time, each tried once. Full once is full: what guesses and failures give up later is left to demands. Not
// synchronised.
class Filler {
 public:
  // The first `known` were in memory before the process began.
  explicit Filler(std::vector<CachedKey> order, size_t known = 0) : order_(std::move(order)), known_(known) {}

  // The next one that is absent; nothing once all were tried or Stop was called.
  std::optional<CachedKey> Next(const Slots& slots);
  void Stop() { next_ = order_.size(); }
  // There is more room than before.
  void Restart() { next_ = 0; }
  bool over() const { return next_ == order_.size(); }

  // The load of Next() has begun.
  void Begun(Slot& slot);
  // That of a record of AskedReads, which is no free room to anybody.
  void BegunAsked(const Slot& slot) { reading_ = &slot; }
  bool reading() const { return reading_ != nullptr; }
  // It is read whole, wanted or failed.
  void Arrived(const Slot& slot) {
    if (reading_ == &slot) reading_ = nullptr;
  }
  // It is wanted, or leaves.
  void Forget(Slot& slot);
  // Once all that were known are tried, and before another is begun: those that nobody has used since, the last of the order
  // first. From here on they are as if used, and no free room.
  std::vector<Slot*> TakeKnown();
  // The one behind all others in the order.
  Slot* LastUnused(absl::FunctionRef<bool(const Slot&)> evictable) const;

  size_t memory_bytes() const { return order_.capacity() * sizeof(CachedKey) + unused_.capacity() * sizeof(Slot*); }

 private:
  const std::vector<CachedKey> order_;
  size_t known_;                   // 0 once they were taken
  size_t next_ = 0;                // of order_
  const Slot* reading_ = nullptr;  // the one loading with unused_fill, or asked for
  std::vector<Slot*> unused_;      // exactly those with unused_fill, in order
};

}  // namespace moed
