#include "core/quant/error_feedback.h"

#include <algorithm>

#include "core/base/check.h"

namespace moed {
namespace {

constexpr double kLeastWeight = 1e-12;  // of the mean of a diagonal: what rounding leaves of nothing

size_t Triangle(size_t count) { return count * (count + 1) / 2; }

}  // namespace

size_t ErrorFeedback::SpanFloats(int cols, int span) {
  size_t floats = 0;
  for (int begin = 0; begin < cols; begin += span) floats += Triangle(static_cast<size_t>(std::min(span, cols - begin)));
  return floats;
}

ErrorFeedback::ErrorFeedback(int cols) : span_(1), weights_(cols, 1.0f), begins_(cols) {}

ErrorFeedback::ErrorFeedback(int cols, int span, std::span<const float> moments, double damping)
    : span_(span), weights_(cols), begins_(cols) {
  MOED_CHECK(span > 0 && moments.size() == SpanFloats(cols, span));
  size_t floats = 0;
  for (int column = 0; column < cols; ++column) {
    begins_[column] = floats;
    floats += static_cast<size_t>(column - first(column));
  }
  factors_.resize(floats);
  const float* at = moments.data();
  for (int begin = 0; begin < cols; begin += span) {
    const int count = std::min(span, cols - begin);
    Factor(begin, count, at, damping);
    at += Triangle(static_cast<size_t>(count));
  }
}

// From the last column to the first: its own share leaves the moments of those before it.
void ErrorFeedback::Factor(int begin, int count, const float* moments, double damping) {
  const auto n = static_cast<size_t>(count);
  std::vector<double> h(moments, moments + Triangle(n));
  const auto row = [&h](size_t i) { return h.data() + i * (i + 1) / 2; };
  double mean = 0;
  for (size_t i = 0; i < n; ++i) mean += row(i)[i] / static_cast<double>(n);
  for (size_t i = 0; i < n; ++i) row(i)[i] += mean > 0 ? damping * mean : 1;
  const double least = mean > 0 ? kLeastWeight * mean : 1;
  for (size_t k = n; k-- > 0;) {
    const double* last = row(k);
    const double d = std::max(last[k], least);
    weights_[static_cast<size_t>(begin) + k] = static_cast<float>(d);
    float* asks = factors_.data() + begins_[static_cast<size_t>(begin) + k];
    for (size_t i = 0; i < k; ++i) asks[i] = static_cast<float>(last[i] / d);
    for (size_t i = 0; i < k; ++i) {
      double* at = row(i);
      const double share = last[i] / d;
      for (size_t j = 0; j <= i; ++j) at[j] -= share * last[j];
    }
  }
}

}  // namespace moed
