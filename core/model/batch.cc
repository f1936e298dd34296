#include "core/model/batch.h"

#include <algorithm>

#include "core/base/check.h"

namespace moed {

void Batch::Assign(std::span<SequenceChunk> chunks, absl::FunctionRef<bool(const SequenceChunk&)> wanted) {
  chunk_count_ = 0;
  rows_ = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].status.ok() && wanted(chunks[i])) Append(chunks[i], static_cast<int>(i));
  }
}

void Batch::Append(SequenceChunk& chunk, int index) {
  const int count = static_cast<int>(chunk.tokens.size());
  MOED_CHECK(count >= 1 && rows_ + count <= static_cast<int>(positions_.size()));
  MOED_CHECK(static_cast<int>(chunk.kv->pages.size()) >= KvPool::PagesFor(chunk.kv->length + count));
  for (int i = 0; i < count; ++i) {
    tokens_[rows_ + i] = chunk.tokens[i];
    positions_[rows_ + i] = chunk.kv->length + i;
    row_chunks_[rows_ + i] = chunk_count_;
  }
  chunk_storage_[chunk_count_++] = {&chunk, index, rows_};
  rows_ += count;
}

bool Batch::AnyFailed() const {
  return std::ranges::any_of(chunks(), [](const BatchChunk& chunk) { return !chunk.chunk->status.ok(); });
}

void Batch::FailAll(const absl::Status& status) {
  for (const BatchChunk& chunk : chunks()) chunk.chunk->status.Update(status);
}

std::span<int32_t> Batch::DropFailed(std::span<int32_t> kept) {
  const int old_count = chunk_count_;
  chunk_count_ = 0;
  rows_ = 0;
  for (int i = 0; i < old_count; ++i) {
    const BatchChunk old = chunk_storage_[i];
    if (!old.chunk->status.ok()) continue;
    for (int row = 0; row < old.rows(); ++row) kept[rows_ + row] = old.first_row + row;
    Append(*old.chunk, old.index);
  }
  return kept.first(rows_);
}

}  // namespace moed
