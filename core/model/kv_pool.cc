#include "core/model/kv_pool.h"

#include <utility>

#include "core/base/status.h"

namespace moed {
namespace {

uint64_t LayerFloats(const ModelSpec& spec) { return static_cast<uint64_t>(kKvPageTokens) * spec.kv_heads * spec.head_dim; }

}  // namespace

uint64_t KvPool::PageBytes(const ModelSpec& spec) { return 2 * LayerFloats(spec) * spec.layers * sizeof(float); }

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::Create(const ModelSpec& spec, int pages) {
  if (pages < 1) return InvalidArgument("a KV pool of ", pages, " pages; at least one is needed");
  const uint64_t page_bytes = PageBytes(spec);
  if (static_cast<uint64_t>(pages) > SIZE_MAX / 2 / page_bytes) {
    return ResourceExhausted("a KV pool of ", pages, " pages of ", page_bytes, " bytes does not fit the address space");
  }
  MOED_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(page_bytes * pages));
  return std::unique_ptr<KvPool>(new KvPool(std::move(buffer), pages, page_bytes / sizeof(float), LayerFloats(spec)));
}

KvPool::KvPool(Buffer buffer, int pages, uint64_t page_floats, uint64_t layer_floats)
    : buffer_(std::move(buffer)), pages_(pages), page_floats_(page_floats), layer_floats_(layer_floats) {
  free_.reserve(pages);
  for (int page = pages - 1; page >= 0; --page) free_.push_back(page);  // the lowest goes first
}

bool KvPool::Reserve(KvSequence& sequence, int positions) {
  const int missing = PagesFor(positions) - static_cast<int>(sequence.pages.size());
  if (missing > free_pages()) return false;
  for (int i = 0; i < missing; ++i) {
    sequence.pages.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void KvPool::Release(KvSequence& sequence) {
  free_.insert(free_.end(), sequence.pages.rbegin(), sequence.pages.rend());
  sequence.pages.clear();
  sequence.length = 0;
}

float* KvPool::Keys(int32_t page, LayerId layer) const {
  return reinterpret_cast<float*>(buffer_.data()) + page * page_floats_ + 2 * layer_floats_ * layer.value();
}

float* KvPool::Values(int32_t page, LayerId layer) const { return Keys(page, layer) + layer_floats_; }

}  // namespace moed
