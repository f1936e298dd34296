#include "core/model/kv_pool.h"

#include <algorithm>
#include <utility>

#include "core/base/status.h"

namespace moed {
namespace {

uint64_t LayerBytes(const ModelSpec& spec, KvFormat format) {
  return static_cast<uint64_t>(kKvPageTokens) * spec.kv_heads * KvRowBytes(format, spec.head_dim);
}

}  // namespace

uint64_t KvPool::PageBytes(const ModelSpec& spec, KvFormat format) { return 2 * LayerBytes(spec, format) * spec.layers; }

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::Create(const ModelSpec& spec, int pages, KvFormat format) {
  if (pages < 1) return InvalidArgument("a KV pool of ", pages, " pages; at least one is needed");
  const uint64_t page_bytes = PageBytes(spec, format);
  if (static_cast<uint64_t>(pages) > SIZE_MAX / 2 / page_bytes) {
    return ResourceExhausted("a KV pool of ", pages, " pages of ", page_bytes, " bytes does not fit the address space");
  }
  MOED_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(page_bytes * pages));
  return std::unique_ptr<KvPool>(new KvPool(std::move(buffer), pages, spec, format));
}

KvPool::KvPool(Buffer buffer, int pages, const ModelSpec& spec, KvFormat format)
    : buffer_(std::move(buffer)),
      pages_(pages),
      format_(format),
      kv_heads_(spec.kv_heads),
      head_dim_(spec.head_dim),
      page_bytes_(PageBytes(spec, format)),
      layer_bytes_(LayerBytes(spec, format)) {
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

const void* KvPool::Keys(int32_t page, LayerId layer) const { return At(page, layer); }
const void* KvPool::Values(int32_t page, LayerId layer) const { return At(page, layer) + layer_bytes_; }

std::byte* KvPool::At(int32_t page, LayerId layer) const {
  return buffer_.data() + page * page_bytes_ + 2 * layer_bytes_ * layer.value();
}

void KvPool::Store(const KvSequence& sequence, int position, LayerId layer, const float* keys, const float* values) {
  std::byte* const page = At(sequence.pages[position / kKvPageTokens], layer);
  for (const auto& [from, to] : {std::pair(keys, page), std::pair(values, page + layer_bytes_)}) {
    for (int head = 0; head < kv_heads_; ++head) {
      const int64_t row = int64_t{head} * kKvPageTokens + position % kKvPageTokens;
      StoreKvRow(format_, from + int64_t{head} * head_dim_, head_dim_, to + row * KvRowBytes(format_, head_dim_));
    }
  }
}

}  // namespace moed
