#include "tools/pack/moments.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/store/checksum.h"

namespace moed {
namespace {

constexpr double kDamping = 0.05;
constexpr double kPriorRows = 512;  // so many rows an expert has beside its own
constexpr int kRowsTogether = 4;
constexpr int kColumnsTogether = 16;

// Appends (tokens, cols) as floats.
void Widen(const Activations& x, std::vector<float>& to) {
  const int cols = x.cols;
  const int64_t blocks = Blocks(cols), width = blocks * kBlockColumns;
  to.resize(to.size() + static_cast<size_t>(x.tokens) * cols);
  float* out = to.data() + to.size() - static_cast<size_t>(x.tokens) * cols;
  for (int64_t token = 0; token < x.tokens; ++token) {
    for (int column = 0; column < cols; ++column) {
      const int64_t at = token * width + column;
      out[token * cols + column] = x.values != nullptr
                                       ? x.values[at]
                                       : static_cast<float>(x.codes[at]) * x.scales[token * blocks + column / kBlockColumns];
    }
  }
}

// Row i of the lower triangle of a span gets the products of column i with those up to it.
void AddRow(const float* x, int rows, int cols, int begin, int i, float* triangle) {
  float* at = triangle + static_cast<int64_t>(i) * (i + 1) / 2;
  for (int row = 0; row < rows; row += kRowsTogether) {
    const float* y[kRowsTogether];
    float by[kRowsTogether];
    for (int r = 0; r < kRowsTogether; ++r) {
      y[r] = x + static_cast<int64_t>(std::min(row + r, rows - 1)) * cols + begin;
      by[r] = row + r < rows ? y[r][i] : 0;
    }
    for (int j = 0; j <= i; ++j) at[j] += (by[0] * y[0][j] + by[1] * y[1][j]) + (by[2] * y[2][j] + by[3] * y[3][j]);
  }
}

void AddTriangles(const std::vector<float>& x, int cols, int span, float* out, Executor& executor) {
  const int rows = static_cast<int>(x.size()) / cols;
  for (int begin = 0; begin < cols; begin += span) {
    const int count = std::min(span, cols - begin);
    executor.ParallelFor(count, kColumnsTogether, [&](int first, int last) {
      for (int i = first; i < last; ++i) AddRow(x.data(), rows, cols, begin, i, out);
    });
    out += ErrorFeedback::SpanFloats(count, count);
  }
}

// Of the columns' own moments.
double DiagonalSum(const float* moments, int cols, int span) {
  double trace = 0;
  for (int begin = 0; begin < cols; begin += span) {
    const int count = std::min(span, cols - begin);
    for (int64_t i = 0; i < count; ++i) trace += moments[i * (i + 1) / 2 + i];
    moments += ErrorFeedback::SpanFloats(count, count);
  }
  return trace;
}

void AddToDiagonal(double amount, int cols, int span, float* moments) {
  for (int begin = 0; begin < cols; begin += span) {
    const int count = std::min(span, cols - begin);
    for (int64_t i = 0; i < count; ++i) moments[i * (i + 1) / 2 + i] += static_cast<float>(amount);
    moments += ErrorFeedback::SpanFloats(count, count);
  }
}

}  // namespace

ExpertMoments::ExpertMoments(const ModelSpec& spec)
    : experts_(spec.experts),
      hidden_(spec.hidden),
      ffn_(spec.expert_ffn),
      identity_(Checksum(SpecToJson(spec))),
      layer_index_(spec.layers, -1) {
  const std::vector<LayerId> layers = spec.MoeLayers();
  for (size_t i = 0; i < layers.size(); ++i) layer_index_[layers[i].value()] = static_cast<int>(i);
  rows_.resize(layers.size() * experts_);
  input_.assign(layers.size(), std::vector<float>(ErrorFeedback::SpanFloats(hidden_, kInputSpan)));
  inner_.assign(layers.size(), std::vector<float>(ErrorFeedback::SpanFloats(ffn_, kInnerSpan) * experts_));
}

void ExpertMoments::Add(LayerId layer, int32_t expert, const Activations& input, const Activations& inner, Executor& executor) {
  MOED_CHECK(input.cols == hidden_ && inner.cols == ffn_ && input.tokens == inner.tokens && input.tokens > 0);
  const size_t moe_layer = LayerIndex(layer);
  if (moe_layer != held_layer_) Settle(executor);
  held_layer_ = moe_layer;
  Widen(input, held_rows_[expert]);
  values_.clear();
  Widen(inner, values_);
  AddTriangles(values_, ffn_, kInnerSpan, inner_[moe_layer].data() + ErrorFeedback::SpanFloats(ffn_, kInnerSpan) * expert,
               executor);
  rows_[moe_layer * experts_ + expert] += static_cast<uint64_t>(input.tokens);
}

void ExpertMoments::Settle(Executor& executor) {
  for (const auto& [expert, rows] : held_rows_) {
    AddTriangles(rows, hidden_, kInputSpan, input_[held_layer_].data(), executor);
  }
  held_rows_.clear();
}

uint64_t ExpertMoments::rows(size_t moe_layer) const {
  const auto first = rows_.begin() + static_cast<int64_t>(moe_layer) * experts_;
  return std::accumulate(first, first + experts_, uint64_t{0});
}

size_t ExpertMoments::experts_without_rows() const { return std::ranges::count(rows_, uint64_t{0}); }

uint64_t ExpertMoments::hash() const {
  ChecksumStream stream;
  stream.Update(std::as_bytes(std::span(rows_)));
  for (const std::vector<float>& sums : input_) stream.Update(std::as_bytes(std::span(sums)));
  for (const std::vector<float>& sums : inner_) stream.Update(std::as_bytes(std::span(sums)));
  return stream.Value();
}

ErrorFeedback ExpertMoments::OfInputs(size_t moe_layer) const {
  return ErrorFeedback(hidden_, kInputSpan, input_[moe_layer], kDamping);
}

ErrorFeedback ExpertMoments::OfInner(size_t moe_layer, int expert) const {
  const size_t floats = ErrorFeedback::SpanFloats(ffn_, kInnerSpan);
  const float* sums = inner_[moe_layer].data();
  double trace = 0;
  for (int e = 0; e < experts_; ++e) trace += DiagonalSum(sums + floats * e, ffn_, kInnerSpan);
  const double mean = trace / ffn_ / static_cast<double>(std::max<uint64_t>(rows(moe_layer), 1));
  std::vector<float> moments(sums + floats * expert, sums + floats * (expert + 1));
  AddToDiagonal(kPriorRows * mean, ffn_, kInnerSpan, moments.data());
  return ErrorFeedback(ffn_, kInnerSpan, moments, kDamping);
}

void ExpertMoments::Visit(LearnedState& state, int32_t& windows) {
  const auto finite = [](float sum) { return std::isfinite(sum); };
  state.Value(windows, [](int32_t count) { return count >= 0; });
  state.Values(rows_, kAnything);
  for (std::vector<float>& sums : input_) state.Values(sums, finite);
  for (std::vector<float>& sums : inner_) state.Values(sums, finite);
}

absl::Status ExpertMoments::Save(const std::string& path, const std::string& source, int32_t windows) {
  return SaveLearned({path, identity_, source}, [&](LearnedState& state) { Visit(state, windows); });
}

absl::StatusOr<int32_t> ExpertMoments::Take(const std::string& path, const std::string& source) {
  int32_t windows = 0;
  MOED_RETURN_IF_ERROR(TakeLearned({path, identity_, source}, [&](LearnedState& state) { Visit(state, windows); }).status());
  return windows;
}

}  // namespace moed
