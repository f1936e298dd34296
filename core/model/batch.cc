#include "core/model/batch.h"

#include <algorithm>

#include "core/base/check.h"

namespace moed {

void Batch::Assign(std::span<SequenceChunk> chunks) {
  chunk_count_ = 0;
  rows_ = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    chunks[i].status = absl::OkStatus();
    Append(chunks[i], static_cast<int>(i));
  }
}

void Batch::Append(SequenceChunk& chunk, int index) {
  const int count = static_cast<int>(chunk.tokens.size());
  MOED_CHECK(count >= 1 && rows_ + count <= static_cast<int>(positions_.size()));
  MOED_CHECK(static_cast<int>(chunk.kv->pages.size()) >= KvPool::PagesFor(chunk.kv->length + count));
  for (int i = 0; i < count; ++i) {
    positions_[rows_ + i] = chunk.kv->length + i;
    row_chunks_[rows_ + i] = chunk_count_;
  }
  chunk_storage_[chunk_count_++] = {&chunk, index, rows_};
  rows_ += count;
}

void Batch::DropFailed(float* x, int width) {
  const int old_count = chunk_count_;
  chunk_count_ = 0;
  rows_ = 0;
  for (int i = 0; i < old_count; ++i) {
    const BatchChunk old = chunk_storage_[i];
    if (!old.chunk->status.ok()) continue;
    const float* from = x + static_cast<int64_t>(old.first_row) * width;
    float* to = x + static_cast<int64_t>(rows_) * width;
    if (from != to) std::copy(from, from + static_cast<int64_t>(old.rows()) * width, to);  // moves towards the front
    Append(*old.chunk, old.index);
  }
}

}  // namespace moed
