// Keys and values of all sequences, in pages of a fixed number of positions carved from one buffer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/kernels/backend.h"
#include "core/model/spec.h"

namespace moed {

inline constexpr int kKvPageTokens = 16;

// The pages of one sequence. Plain data; the pool hands them out.
struct KvSequence {
  std::vector<int32_t> pages;
  int length = 0;  // positions written
};

// A number is rounded once, when it is stored (core/kernels/kv_rows.h). Engine thread only.
class KvPool {
 public:
  static uint64_t PageBytes(const ModelSpec& spec, KvFormat format = KvFormat::kF32);
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(const ModelSpec& spec, int pages, KvFormat format = KvFormat::kF32);

  KvFormat format() const { return format_; }

  int pages() const { return pages_; }
  int free_pages() const { return static_cast<int>(free_.size()); }
  static int PagesFor(int positions) { return (positions + kKvPageTokens - 1) / kKvPageTokens; }
  // Grows `sequence` to hold `positions`; false (and unchanged) when too few pages are free.
  bool Reserve(KvSequence& sequence, int positions);
  void Release(KvSequence& sequence);  // gives all pages back; length becomes 0

  // (kv_heads, kKvPageTokens) rows of format(): a head's keys lie together, since they are read together.
  const void* Keys(int32_t page, LayerId layer) const;
  const void* Values(int32_t page, LayerId layer) const;  // the same
  // What one position has in one layer: keys, values (kv_heads, head_dim). Its page is reserved.
  void Store(const KvSequence& sequence, int position, LayerId layer, const float* keys, const float* values);

 private:
  KvPool(Buffer buffer, int pages, const ModelSpec& spec, KvFormat format);
  std::byte* At(int32_t page, LayerId layer) const;

  Buffer buffer_;
  int pages_;
  KvFormat format_;
  int kv_heads_;
  int head_dim_;
  uint64_t page_bytes_;
  uint64_t layer_bytes_;  // keys of one layer in one page; values follow
  std::vector<int32_t> free_;
};

}  // namespace moed
