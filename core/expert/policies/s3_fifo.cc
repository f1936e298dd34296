#include "core/expert/policies/s3_fifo.h"

#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/expert/expert_index.h"
#include "core/expert/policies/key_lists.h"

namespace moed {
namespace {

// What enters goes through a small queue, from which only what was used again gets into the main one; the ghost queue remembers
// who did not. Sizes are in records. A record that is in use keeps its place in the queue.
//
// One record leaves at a time: where the paper's main queue overflows by what the small one promotes, its own leaves instead of
// another of the small queue, not as well. Where a use and its insertion are two events: a prefetched record's first use is what
// a demanded one's insertion is, and it leaves no ghost if nobody used it.
class S3FifoPolicy final : public EvictionPolicy {
 public:
  explicit S3FifoPolicy(const ExpertModelShape& context)
      : index_(context.moe_layers, context.experts_per_layer, context.precisions),
        queues_(index_.size(), kQueues),
        uses_(index_.size(), kUnused),
        demanded_(index_.size()) {}

  void OnAccess(CachedKey key, const AccessContext&) override {
    const size_t i = index_.Of(key);
    if (Resident(i)) {
      uses_[i] = static_cast<int8_t>(std::min(uses_[i] + 1, kMostUses));
    } else {
      demanded_[i] = true;
      if (queues_.Listed(i)) queues_.PutFirst(kGhost, i);  // so that it outlives the wait for its room
    }
  }
  void OnInsert(CachedKey key, uint64_t) override {
    const size_t i = index_.Of(key);
    MOED_CHECK(!Resident(i));
    queues_.PutFirst(queues_.Has(kGhost, i) ? kMain : kSmall, i);
    uses_[i] = demanded_[i] ? 0 : kUnused;
    demanded_[i] = false;
    while (queues_.size(kGhost) > MainTarget()) queues_.Remove(queues_.Last(kGhost));
  }
  void OnEvict(CachedKey key) override {
    const size_t i = index_.Of(key);
    MOED_CHECK(Resident(i));
    if (queues_.Has(kSmall, i) && uses_[i] != kUnused) {
      queues_.PutFirst(kGhost, i);
    } else {
      queues_.Remove(i);
    }
  }
  std::optional<CachedKey> Victim(const Incoming&, absl::FunctionRef<bool(CachedKey)> evictable) override {
    const auto may_leave = [&](size_t i) { return evictable(index_.KeyAt(i)); };
    const bool small_first = queues_.size(kSmall) >= SmallTarget();
    const size_t victim = small_first ? FromSmall(may_leave) : FromMain(may_leave);
    return index_.KeyIfAny(victim != KeyLists::kNone ? victim : small_first ? FromMain(may_leave) : FromSmall(may_leave));
  }

 private:
  enum Queue : size_t { kSmall, kMain, kGhost, kQueues };
  static constexpr int8_t kUnused = -1;
  static constexpr int kMostUses = 3;          // of two bits
  static constexpr int kUsesToPromote = 2;     // "more than one"
  static constexpr size_t kSmallDivisor = 10;  // the small queue's part of the cache

  bool Resident(size_t i) const { return queues_.Has(kSmall, i) || queues_.Has(kMain, i); }
  size_t residents() const { return queues_.size(kSmall) + queues_.size(kMain); }
  size_t SmallTarget() const { return std::max<size_t>(residents() / kSmallDivisor, 1); }
  size_t MainTarget() const { return residents() - std::min(residents(), SmallTarget()); }

  size_t FromSmall(absl::FunctionRef<bool(size_t)> may_leave) {
    for (size_t i = queues_.Last(kSmall), newer; i != KeyLists::kNone; i = newer) {
      newer = queues_.Before(i);
      if (uses_[i] >= kUsesToPromote) {
        queues_.PutFirst(kMain, i);
        uses_[i] = 0;
        if (queues_.size(kMain) <= MainTarget()) continue;
        const size_t victim = FromMain(may_leave);
        if (victim != KeyLists::kNone) return victim;
      } else if (may_leave(i)) {
        return i;
      }
    }
    return KeyLists::kNone;
  }
  // Goes round until one has no use left: at most once for each use that counts, and once more.
  size_t FromMain(absl::FunctionRef<bool(size_t)> may_leave) {
    for (int round = 0; round <= kMostUses; ++round) {
      size_t i = queues_.Last(kMain);
      for (size_t left = queues_.size(kMain); left > 0; --left) {
        const size_t newer = queues_.Before(i);
        if (uses_[i] > 0) {
          --uses_[i];
          queues_.PutFirst(kMain, i);
        } else if (may_leave(i)) {
          return i;
        }
        i = newer;
      }
    }
    return KeyLists::kNone;
  }

  const ExpertIndex index_;
  KeyLists queues_;  // each: entered last first
  std::vector<int8_t> uses_;
  std::vector<bool> demanded_;  // absent and asked for
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeS3FifoPolicy(const ExpertModelShape& context) {
  return std::make_unique<S3FifoPolicy>(context);
}

}  // namespace moed
