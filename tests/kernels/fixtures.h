// Inputs for kernel tests: random, reproducible, at any alignment.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/buffer.h"
#include "core/kernels/backend.h"
#include "core/quant/encoding.h"
#include "core/quant/format.h"
#include "core/quant/half.h"
#include "gtest/gtest.h"

namespace moed {

inline constexpr FfnActivation kSwiGlu = {GateFunction::kSwiGlu};
inline constexpr FfnActivation kGeGlu = {GateFunction::kGeGlu};
inline constexpr FfnActivation kSquaredRelu = {GateFunction::kSquaredRelu};
inline constexpr FfnActivation kRelu = {GateFunction::kRelu};
inline constexpr FfnActivation kReGlu = {GateFunction::kReGlu};

// As GoogleTest wants the names of parameters: letters, digits and underscores.
inline std::string TestName(std::string_view name) {
  std::string result(name);
  for (char& c : result) c = c == '-' ? '_' : c;
  return result;
}

inline std::vector<float> Gaussian(size_t count, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// `count` elements that start `misalignment` elements after a 64-byte border.
template <class T>
class Misaligned {
 public:
  Misaligned(std::span<const T> values, size_t misalignment)
      : buffer_(Buffer::Allocate((values.size() + misalignment + 1) * sizeof(T)).value()),
        span_(reinterpret_cast<T*>(buffer_.data()) + misalignment, values.size()) {
    std::memcpy(span_.data(), values.data(), values.size_bytes());
  }
  T* data() { return span_.data(); }
  std::vector<T> copy() const { return {span_.begin(), span_.end()}; }

 private:
  Buffer buffer_;
  std::span<T> span_;
};

// Pages with the keys and values (positions, kv_heads, head_dim) of one sequence, `misalignment` bytes after a 64-byte border.
// Whatever no position fills is NaN, so that it shows where it is used.
class KvPages {
 public:
  KvPages(const AttentionShape& shape, std::span<const float> keys, std::span<const float> values, size_t misalignment = 0)
      : bytes_(std::vector<std::byte>(PageBytes(shape) * Pages(shape, keys), std::byte{0xff}), misalignment) {
    for (int page = 0; page < Pages(shape, keys); ++page) pages_.push_back(bytes_.data() + page * PageBytes(shape));
    std::vector<std::byte> row(KvRowBytes(shape.kv_format, shape.head_dim));
    const int64_t head_bytes = shape.page_tokens * static_cast<int64_t>(row.size());
    for (int64_t i = 0; i < static_cast<int64_t>(keys.size()) / shape.head_dim; ++i) {
      const int position = static_cast<int>(i / shape.kv_heads), slot = position % shape.page_tokens;
      std::byte* const head = pages_[position / shape.page_tokens] + i % shape.kv_heads * head_bytes;
      StoreKvRow(shape.kv_format, &keys[i * shape.head_dim], shape.head_dim, row.data());
      PlaceKvKey(shape.kv_format, row.data(), shape.head_dim, shape.page_tokens, slot, head);
      StoreKvRow(shape.kv_format, &values[i * shape.head_dim], shape.head_dim, row.data());
      std::memcpy(head + shape.kv_heads * head_bytes + slot * row.size(), row.data(), row.size());
    }
  }
  std::span<std::byte* const> pages() const { return pages_; }
  std::vector<std::byte> copy() const { return bytes_.copy(); }

  static int64_t PageBytes(const AttentionShape& shape) {
    return 2 * shape.page_tokens * shape.kv_heads * KvRowBytes(shape.kv_format, shape.head_dim);
  }

 private:
  static int Pages(const AttentionShape& shape, std::span<const float> keys) {
    return static_cast<int>(CeilDiv(CeilDiv(keys.size(), shape.kv_heads * shape.head_dim), shape.page_tokens));
  }
  Misaligned<std::byte> bytes_;
  std::vector<std::byte*> pages_;
};

// Pages with the latents (positions, rank) and rotated keys (positions, rotary_dims) of one sequence; otherwise as KvPages.
class LatentPages {
 public:
  LatentPages(const LatentShape& shape, std::span<const float> latents, std::span<const float> rotated, size_t misalignment = 0)
      : bytes_(
            std::vector<std::byte>(PageBytes(shape) * CeilDiv(latents.size() / shape.rank, shape.page_tokens), std::byte{0xff}),
            misalignment) {
    const int positions = static_cast<int>(latents.size()) / shape.rank;
    for (int page = 0; page * shape.page_tokens < positions; ++page) pages_.push_back(bytes_.data() + page * PageBytes(shape));
    for (int t = 0; t < positions; ++t) {
      std::byte* const row =
          pages_[t / shape.page_tokens] + t % shape.page_tokens * LatentRowBytes(shape.kv_format, shape.rank, shape.rotary_dims);
      StoreKvRow(shape.kv_format, &latents[static_cast<size_t>(t) * shape.rank], shape.rank, row);
      StoreKvRow(shape.kv_format, &rotated[static_cast<size_t>(t) * shape.rotary_dims], shape.rotary_dims,
                 row + KvRowBytes(shape.kv_format, shape.rank));
    }
  }
  std::span<std::byte* const> pages() const { return pages_; }
  std::vector<std::byte> copy() const { return bytes_.copy(); }

 private:
  static int64_t PageBytes(const LatentShape& shape) {
    return shape.page_tokens * LatentRowBytes(shape.kv_format, shape.rank, shape.rotary_dims);
  }
  Misaligned<std::byte> bytes_;
  std::vector<std::byte*> pages_;
};

struct PackedMatrix {
  MatrixView view;
  std::vector<std::byte> bytes;
};

inline PackedMatrix Pack(FormatId format, std::span<const float> weights, int rows, int cols) {
  PackedMatrix matrix{{format, rows, cols, nullptr}, std::vector<std::byte>(PackedBytes(format, rows, cols))};
  EXPECT_TRUE(EncodeRows(format, weights.data(), rows, cols, matrix.bytes).ok());
  matrix.view.data = matrix.bytes.data();
  return matrix;
}

// Of a format that is only kept: any codes and small scales behind float scales and offsets that are weights' size.
inline PackedMatrix RandomKept(FormatId id, int rows, int cols, uint32_t seed) {
  const Format& format = FormatOf(id);
  PackedMatrix matrix{{id, rows, cols, nullptr}, std::vector<std::byte>(PackedBytes(id, rows, cols))};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.003f);
  for (size_t i = 0; i < matrix.bytes.size(); ++i) {
    const size_t at = i % format.panel_block_bytes;
    matrix.bytes[i] = std::byte(random() & 0xff);
    if (at < format.scale_bytes && format.scale_bytes < 2 * kPanelRows) matrix.bytes[i] = std::byte(120 + random() % 6);  // e8m0
    if (at < format.scale_bytes && format.scale_bytes >= 2 * kPanelRows && at % 2 == 1) {
      const uint16_t half = FloatToFloat16(normal(random));
      std::memcpy(&matrix.bytes[i - 1], &half, sizeof(half));
    }
    if (id == FormatId::kFp8 && at < 32 && at % 4 == 3) {
      const float scale = normal(random) / 100;
      std::memcpy(&matrix.bytes[i - 3], &scale, sizeof(scale));
    }
    if (id == FormatId::kNvfp4 && at == 7) {
      const float factor = normal(random) / 100, rest = factor * 0x1p-25f * normal(random);
      std::memcpy(&matrix.bytes[i - 7], &factor, sizeof(factor));
      std::memcpy(&matrix.bytes[i - 3], &rest, sizeof(rest));
    }
  }
  matrix.view.data = matrix.bytes.data();
  return matrix;
}

inline PackedMatrix RandomMatrix(FormatId format, int rows, int cols, uint32_t seed) {
  if (!Makes(QuantizerId::kRtn, format)) return RandomKept(format, rows, cols, seed);
  return Pack(format, Gaussian(static_cast<size_t>(rows) * cols, seed, 0.1f), rows, cols);
}

// `cols`, or as many of the format's blocks as it takes them to hold so many.
inline int ColumnsFor(const Format& format, int cols) {
  if (FitsColumns(format.id, cols)) return cols;
  return static_cast<int>(CeilDiv(cols, format.block_columns)) * format.block_columns;
}

// These, each once.
inline std::vector<int> ColumnsFor(const Format& format, std::initializer_list<int> columns) {
  std::vector<int> all;
  for (const int cols : columns) {
    const int fitting = ColumnsFor(format, cols);
    if (all.empty() || all.back() != fitting) all.push_back(fitting);
  }
  return all;
}

// y (tokens, rows) of one product on `backend`, `misalignment` floats off for the input.
inline std::vector<float> Multiply(ComputeBackend& backend, const MatrixView& weights, std::span<const float> x, int tokens,
                                   size_t misalignment = 0) {
  Misaligned<float> input(x, misalignment);
  Buffer storage = Buffer::Allocate(ActivationBytes(tokens, weights.cols)).value();
  const Activations activations =
      backend.Prepare(input.data(), tokens, weights.cols, weights.cols, InputForms::Of({weights.format}), storage.span());
  std::vector<float> y(static_cast<size_t>(tokens) * weights.rows);
  const MatMulJob job{weights, &activations, y.data(), weights.rows};
  backend.MatMul({&job, 1});
  EXPECT_EQ(backend.Fence(), absl::OkStatus());
  return y;
}

// The same bits, any NaN standing for every other.
inline ::testing::AssertionResult SameBits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " values against " << b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]) || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    return ::testing::AssertionFailure() << "element " << i << ": " << std::hexfloat << a[i] << " against " << b[i];
  }
  return ::testing::AssertionSuccess();
}

// The same forms and in them the same bits.
inline ::testing::AssertionResult SamePrepared(const Activations& a, const Activations& b) {
  const size_t blocks = static_cast<size_t>(a.tokens) * Blocks(a.cols);
  if (a.tokens != b.tokens || a.cols != b.cols || !a.forms().Cover(b.forms()) || !b.forms().Cover(a.forms())) {
    return ::testing::AssertionFailure() << "other shapes or forms";
  }
  if (a.values != nullptr) {
    if (const auto same = SameBits({a.values, blocks * kBlockColumns}, {b.values, blocks * kBlockColumns}); !same) return same;
  }
  if (a.codes == nullptr) return ::testing::AssertionSuccess();
  if (const auto same = SameBits({a.scales, blocks}, {b.scales, blocks}); !same) return same;
  if (std::memcmp(a.codes, b.codes, blocks * kBlockColumns) != 0) return ::testing::AssertionFailure() << "other codes";
  if (std::memcmp(a.sums, b.sums, blocks * sizeof(int32_t)) != 0) return ::testing::AssertionFailure() << "other sums";
  return ::testing::AssertionSuccess();
}

}  // namespace moed
