// Records that the operator wants in memory always. A pin is what a handle holds for a moment; this is an anchor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/ids.h"
#include "core/expert/expert_index.h"
#include "core/store/store.h"

namespace moed {

// An anchored record is never a victim, whether it has been read yet or not. Not synchronised.
class Anchors {
 public:
  Anchors(const ExpertIndex& index, const StoreReader& store);  // both outlive it

  bool Has(const CachedKey& key) const { return !anchored_.empty() && anchored_[index_.Of(key)]; }
  // What is so already stays as it is.
  void Set(const CachedKey& key, bool anchored);
  void Clear();

  size_t count() const { return count_; }
  // What the others have to do without. Where records differ in size the hole between two of them may be too small for one that
  // comes, so each counts as much more as the largest record has.
  uint64_t bytes() const { return bytes_; }
  uint64_t BytesFor(const CachedKey& key) const;

  size_t memory_bytes() const { return anchored_.capacity() / 8; }

 private:
  const ExpertIndex& index_;
  const StoreReader& store_;
  const uint64_t beside_bytes_;  // of each, beside its own
  std::vector<bool> anchored_;   // by key; empty until the first one
  size_t count_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace moed
