// What blocks of a device's threads that share a row's positions tell each other, where attention is spread over them.
#pragma once

#include <cstdint>

namespace moed::cuda {

inline constexpr int kAttentionPiece = 256;   // positions whose weighted values are added up before they join the others
inline constexpr int kAttentionSegment = 32;  // positions of a piece whose scores a block of threads makes

// In floats, of query rows with `pieces` each and `dims` values a position.
struct PieceFloats {
  constexpr PieceFloats(int64_t rows, int64_t pieces, int64_t dims)
      : scores(rows * pieces * kAttentionPiece),
        largest(scores / kAttentionSegment),
        sums(pieces == 1 ? 0 : rows * pieces * dims) {}
  constexpr int64_t all() const { return scores + largest + sums; }

  int64_t scores, largest, sums;
};

}  // namespace moed::cuda
