// Keys and values of all sequences, in pages of a fixed number of positions carved from one buffer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/kernels/kv_rows.h"
#include "core/model/spec.h"

namespace moed {

// The pages of one sequence. Plain data; the pool hands them out.
struct KvSequence {
  std::vector<int32_t> pages;
  int length = 0;  // positions written
};

// Hands out pages and says where they are; ComputeBackend::StoreKv fills them. Engine thread only.
class KvPool {
 public:
  static uint64_t PageBytes(const ModelSpec& spec, KvFormat format = KvFormat::kF32, int page_tokens = kKvPageTokens);
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(const ModelSpec& spec, int pages, KvFormat format = KvFormat::kF32,
                                                        int page_tokens = kKvPageTokens);

  KvFormat format() const { return format_; }
  int page_tokens() const { return page_tokens_; }

  int pages() const { return pages_; }
  int free_pages() const { return static_cast<int>(free_.size()); }
  static int PagesFor(int positions, int page_tokens = kKvPageTokens) { return (positions + page_tokens - 1) / page_tokens; }
  // Grows `sequence` to hold `positions`; false (and unchanged) when too few pages are free.
  bool Reserve(KvSequence& sequence, int positions);
  void Release(KvSequence& sequence);  // gives all pages back; length becomes 0

  // What a page holds of one layer: see core/kernels/kv_rows.h.
  std::byte* At(int32_t page, LayerId layer) const;

 private:
  KvPool(Buffer buffer, int pages, const ModelSpec& spec, KvFormat format, int page_tokens);

  Buffer buffer_;
  int pages_;
  KvFormat format_;
  int page_tokens_;
  uint64_t page_bytes_;
  uint64_t layer_bytes_;  // of one page
  std::vector<int32_t> free_;
};

}  // namespace moed
