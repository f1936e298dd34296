// What heads add to their scores by the distance of two positions, for the host and for kernels.
#pragma once

namespace moed {

// table (heads, 2 reach + 1): the key `reach` positions before the query, ..., the query's own, ..., `reach` behind it. Further
// away is as far as `reach`.
struct PositionBias {
  const float* table = nullptr;  // null: none
  int reach = 0;
};

}  // namespace moed
