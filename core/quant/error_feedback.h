// What the error of one column of a matrix asks of the columns behind it, when products with inputs of known second moments shall
// change least (Frantar et al., GPTQ, arXiv 2210.17323; as the factorisation of Chee et al., QuIP, arXiv 2307.13304).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace moed {

// Of inputs in spans of neighbouring columns; what columns of two spans have in common is not known. With H the mean of x x^T and
// H = U D U^T, U upper with ones on its diagonal, the error e of a row costs e H e^T = the sum over k of D[k] f[k]^2, f = e U. So
// a column is rounded from its weight plus what the errors before it ask.
class ErrorFeedback {
 public:
  // `moments`: SpanFloats numbers, span after span the lower triangle of H, row after row. `damping`: so much of the mean of H's
  // diagonal is added to it. H is that of inputs, so that what is factored is positive.
  ErrorFeedback(int cols, int span, std::span<const float> moments, double damping);
  // Nothing is known of the inputs: every column for itself, all alike.
  explicit ErrorFeedback(int cols);

  static size_t SpanFloats(int cols, int span);

  int cols() const { return static_cast<int>(weights_.size()); }
  float weight(int column) const { return weights_[column]; }  // D[column], positive
  // The first column of which errors ask something of this one.
  int first(int column) const { return column / span_ * span_; }
  // U[c][column] for c from first(column) to column - 1.
  const float* asks(int column) const { return factors_.data() + begins_[column]; }

 private:
  void Factor(int begin, int count, const float* moments, double damping);

  int span_;
  std::vector<float> weights_;
  std::vector<float> factors_;
  std::vector<size_t> begins_;  // by column
};

}  // namespace moed
