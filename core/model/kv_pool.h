// Keys and values of all sequences, in pages of a fixed number of positions carved from one buffer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/model/spec.h"

namespace moed {

inline constexpr int kKvPageTokens = 16;

// The pages of one sequence. Plain data; the pool hands them out.
struct KvSequence {
  std::vector<int32_t> pages;
  int length = 0;  // positions written
};

// Float32. Engine thread only.
class KvPool {
 public:
  static uint64_t PageBytes(const ModelSpec& spec);
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(const ModelSpec& spec, int pages);

  int pages() const { return pages_; }
  int free_pages() const { return static_cast<int>(free_.size()); }
  static int PagesFor(int positions) { return (positions + kKvPageTokens - 1) / kKvPageTokens; }
  // Grows `sequence` to hold `positions`; false (and unchanged) when too few pages are free.
  bool Reserve(KvSequence& sequence, int positions);
  void Release(KvSequence& sequence);  // gives all pages back; length becomes 0

  float* Keys(int32_t page, LayerId layer) const;    // (kKvPageTokens, kv_heads, head_dim)
  float* Values(int32_t page, LayerId layer) const;  // the same

 private:
  KvPool(Buffer buffer, int pages, uint64_t page_floats, uint64_t layer_floats);
  Buffer buffer_;
  int pages_;
  uint64_t page_floats_;
  uint64_t layer_floats_;  // keys of one layer in one page; values follow
  std::vector<int32_t> free_;
};

}  // namespace moed
