// Who is chosen by values of a layer's experts, as routers choose.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>

namespace moed {

// Of `values` (experts) the `count` highest, the highest first, of equals the lower number. `order` (experts) is where they
// stand.
inline std::span<const int32_t> TopExperts(std::span<const float> values, size_t count, std::span<int32_t> order) {
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [values](int32_t a, int32_t b) {
                      const float p = values[static_cast<size_t>(a)], q = values[static_cast<size_t>(b)];
                      return p != q ? p > q : a < b;
                    });
  return order.first(count);
}

}  // namespace moed
