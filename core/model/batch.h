// The tokens of one step as rows: those of a chunk are consecutive, chunks follow each other in the order given.
#pragma once

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "core/model/model.h"

namespace moed {

struct BatchChunk {
  SequenceChunk* chunk = nullptr;
  int index = 0;  // in Forward's chunks
  int first_row = 0;
  int rows() const { return static_cast<int>(chunk->tokens.size()); }
  int last_row() const { return first_row + rows() - 1; }
};

// Storage is the caller's, sized for the largest step.
class Batch {
 public:
  Batch() = default;
  Batch(std::span<BatchChunk> chunks, std::span<TokenId> tokens, std::span<int32_t> positions, std::span<int32_t> row_chunks)
      : chunk_storage_(chunks), tokens_(tokens), positions_(positions), row_chunks_(row_chunks) {}

  // Those of the chunks that have not failed and are `wanted`.
  void Assign(std::span<SequenceChunk> chunks, absl::FunctionRef<bool(const SequenceChunk&)> wanted);
  bool AnyFailed() const;
  // The chunks that have not failed yet do with this error.
  void FailAll(const absl::Status& status);
  // Removes the chunks whose status is an error. The others keep their order; where their rows were is written to `kept`.
  std::span<int32_t> DropFailed(std::span<int32_t> kept);

  int rows() const { return rows_; }
  std::span<const BatchChunk> chunks() const { return chunk_storage_.first(chunk_count_); }
  std::span<const TokenId> tokens() const { return tokens_.first(rows_); }
  std::span<const int32_t> positions() const { return positions_.first(rows_); }  // of each row in its sequence
  const BatchChunk& chunk_of(int row) const { return chunk_storage_[row_chunks_[row]]; }
  // That the row's token follows in its sequence; -1: none.
  TokenId before(int row) const { return row == chunk_of(row).first_row ? chunk_of(row).chunk->before : tokens_[row - 1]; }

 private:
  void Append(SequenceChunk& chunk, int index);

  std::span<BatchChunk> chunk_storage_;
  std::span<TokenId> tokens_;
  std::span<int32_t> positions_;
  std::span<int32_t> row_chunks_;
  int chunk_count_ = 0;
  int rows_ = 0;
};

}  // namespace moed
