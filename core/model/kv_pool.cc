#include "core/model/kv_pool.h"

#include <algorithm>
#include <utility>

#include "core/base/status.h"

namespace moed {
namespace {

uint64_t LayerBytes(const ModelSpec& spec, KvFormat format, int page_tokens) {
  return uint64_t{2} * page_tokens * spec.kv_heads * KvRowBytes(format, spec.head_dim);
}

}  // namespace

uint64_t KvPool::PageBytes(const ModelSpec& spec, KvFormat format, int page_tokens) {
  return LayerBytes(spec, format, page_tokens) * spec.layers;
}

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::Create(const ModelSpec& spec, int pages, KvFormat format, int page_tokens) {
  if (pages < 1) return InvalidArgument("a KV pool of ", pages, " pages; at least one is needed");
  const uint64_t page_bytes = PageBytes(spec, format, page_tokens);
  if (static_cast<uint64_t>(pages) > SIZE_MAX / 2 / page_bytes) {
    return ResourceExhausted("a KV pool of ", pages, " pages of ", page_bytes, " bytes does not fit the address space");
  }
  MOED_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(page_bytes * pages));
  return std::unique_ptr<KvPool>(new KvPool(std::move(buffer), pages, spec, format, page_tokens));
}

KvPool::KvPool(Buffer buffer, int pages, const ModelSpec& spec, KvFormat format, int page_tokens)
    : buffer_(std::move(buffer)),
      pages_(pages),
      format_(format),
      page_tokens_(page_tokens),
      page_bytes_(PageBytes(spec, format, page_tokens)),
      layer_bytes_(LayerBytes(spec, format, page_tokens)) {
  free_.reserve(pages);
  for (int page = pages - 1; page >= 0; --page) free_.push_back(page);  // the lowest goes first
}

bool KvPool::Reserve(KvSequence& sequence, int positions) {
  const int missing = PagesFor(positions, page_tokens_) - static_cast<int>(sequence.pages.size());
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

std::byte* KvPool::At(int32_t page, LayerId layer) const {
  return buffer_.data() + page * page_bytes_ + layer_bytes_ * layer.value();
}

}  // namespace moed
