// A panel with error feedback: columns one after the other, each rounded from its weight and what the errors before it ask.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/quant/error_feedback.h"
#include "core/quant/format.h"
#include "core/quant/snapped_lines.h"

namespace moed::quant {

// Four rows of a block, which was zero.
template <class Units, class Layout>
void PutRows(const Lines& lines, const FourRows (&units)[kBlockColumns], int first_row, std::byte* out) {
  for (int lane = 0; lane < kRowsTogether; ++lane) {
    RowBlock row;
    for (int i = 0; i < kBlockColumns; ++i) row.codes[i] = Units::Code(units[i][lane]);
    Units::PutLine(lines.scale[lane], lines.offset[lane], row);
    Layout::Put(row, first_row + lane, out);
  }
}

// Four rows of a panel. `weights`: by padded column; errors of padding are zero, since it meets no input.
template <class Units, class Layout>
class FedBackRows {
 public:
  FedBackRows(const ErrorFeedback& feedback, const FourRows* weights, FourRows* errors)
      : feedback_(feedback), weights_(weights), errors_(errors) {}

  // The block of 32 columns from `first` on.
  void EncodeBlock(int first, int first_row, std::byte* out) {
    const int count = std::min(kBlockColumns, feedback_.cols() - first);
    FourRowsColumns asked;
    float costs[kBlockColumns];
    for (int i = 0; i < kBlockColumns; ++i) {
      asked.at[i] = i < count ? Asked(first + i, first) : Splat(0);
      costs[i] = i < count ? feedback_.weight(first + i) : 0;
    }
    const Lines lines = FitSnapped<Units>(asked, costs);
    const FourRows inverse = InverseOrZero(lines.scale);
    FourRows units[kBlockColumns];
    for (int i = 0; i < kBlockColumns; ++i) {
      const FourRows weight = i < count ? asked.at[i] + FromBlock(first, i) : Splat(0);
      units[i] = UnitOn<Units>(lines, inverse, weight, i);
      if (i < count) errors_[first + i] = weights_[first + i] - (lines.scale * units[i] + lines.offset);
    }
    PutRows<Units, Layout>(lines, units, first_row, out);
  }

 private:
  // Column's weight and what errors before `end` ask of it.
  FourRows Asked(int column, int end) const {
    FourRows sums[4] = {weights_[column], Splat(0), Splat(0), Splat(0)};
    const int begin = feedback_.first(column), count = end - begin;
    const float* asks = feedback_.asks(column);
    const FourRows* errors = errors_ + begin;
    int i = 0;
    for (; i + 4 <= count; i += 4) {
      for (int j = 0; j < 4; ++j) sums[j] += Splat(asks[i + j]) * errors[i + j];
    }
    for (; i < count; ++i) sums[0] += Splat(asks[i]) * errors[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  // What the errors of the block's columns before column `first` + i ask of it.
  FourRows FromBlock(int first, int i) const {
    FourRows sum = Splat(0);
    const int asked_from = feedback_.first(first + i), begin = std::max(first, asked_from);
    const float* asks = feedback_.asks(first + i);
    for (int column = begin; column < first + i; ++column) sum += Splat(asks[column - asked_from]) * errors_[column];
    return sum;
  }

  const ErrorFeedback& feedback_;
  const FourRows* weights_;
  FourRows* errors_;
};

// `weights`: 8 rows of feedback.cols().
template <class Units, class Layout>
void EncodeFedBack(const float* weights, const ErrorFeedback& feedback, std::byte* out) {
  const int cols = feedback.cols();
  std::memset(out, 0, size_t{Layout::kBytes} * static_cast<size_t>(Blocks(cols)));
  std::vector<FourRows> columns(cols), errors(cols);
  for (int first_row = 0; first_row < kPanelRows; first_row += kRowsTogether) {
    for (int column = 0; column < cols; ++column) {
      for (int lane = 0; lane < kRowsTogether; ++lane) {
        columns[column][lane] = weights[static_cast<size_t>(first_row + lane) * cols + column];
      }
    }
    FedBackRows<Units, Layout> rows(feedback, columns.data(), errors.data());
    std::byte* at = out;
    for (int first = 0; first < cols; first += kBlockColumns, at += Layout::kBytes) rows.EncodeBlock(first, first_row, at);
  }
}

// The weights of one block to nearest, all columns alike.
template <class Units, class Layout>
void EncodeSnapped(const float* weights, std::byte* out) {
  std::memset(out, 0, Layout::kBytes);
  float costs[kBlockColumns];
  for (float& cost : costs) cost = 1;
  for (int first_row = 0; first_row < kPanelRows; first_row += kRowsTogether) {
    const FourRowsColumns columns = Transpose(weights, first_row);
    const Lines lines = FitSnapped<Units>(columns, costs);
    const FourRows inverse = InverseOrZero(lines.scale);
    FourRows units[kBlockColumns];
    for (int i = 0; i < kBlockColumns; ++i) units[i] = UnitOn<Units>(lines, inverse, columns.at[i], i);
    PutRows<Units, Layout>(lines, units, first_row, out);
  }
}

}  // namespace moed::quant
