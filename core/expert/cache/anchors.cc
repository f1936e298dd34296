#include "core/expert/cache/anchors.h"

#include "core/store/layout.h"

namespace moed {
namespace {

// 0 where all have one size.
uint64_t LargestWhereTheyDiffer(const ExpertIndex& index, const StoreReader& store) {
  const uint64_t largest = LargestRecordBytes(store.description());
  for (size_t i = 0; i < index.size(); ++i) {
    if (store.expert_bytes(index.KeyAt(i)) != largest) return largest;
  }
  return 0;
}

}  // namespace

Anchors::Anchors(const ExpertIndex& index, const StoreReader& store)
    : index_(index), store_(store), beside_bytes_(LargestWhereTheyDiffer(index, store)) {}

uint64_t Anchors::BytesFor(const CachedKey& key) const { return store_.expert_bytes(key) + beside_bytes_; }

void Anchors::Set(const CachedKey& key, bool anchored) {
  if (Has(key) == anchored) return;
  anchored_.resize(index_.size());
  anchored_[index_.Of(key)] = anchored;
  count_ += anchored ? 1 : -1;
  bytes_ += anchored ? BytesFor(key) : -BytesFor(key);
}

void Anchors::Clear() {
  anchored_.clear();
  count_ = 0;
  bytes_ = 0;
}

}  // namespace moed
