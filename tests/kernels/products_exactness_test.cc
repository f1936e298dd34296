// What is prepared for products, and products: bit for bit those of "scalar".
#include <algorithm>
#include <iterator>

#include "tests/kernels/exactness.h"

namespace moed {
namespace {

// The formats of codes and scales, those of the weights themselves left out: one at least.
std::vector<Format> BlockFormats() {
  std::vector<Format> formats;
  std::copy_if(Formats().begin(), Formats().end(), std::back_inserter(formats),
               [](const Format& f) { return f.scale_bytes > 0; });
  EXPECT_FALSE(formats.empty());
  return formats;
}

TEST_P(Exactness, Prepare) {
  for (int cols : kLengths) {
    for (int tokens : {1, 3, 20}) {
      for (bool awkward : {false, true}) {
        const std::vector<float> x = awkward ? Awkward(tokens * cols, cols) : Gaussian(tokens * cols, cols);
        Misaligned<float> input(x, cols % 8);
        const size_t bytes = ActivationBytes(tokens, cols);
        Buffer expected_storage = Buffer::Allocate(bytes).value(), storage = Buffer::Allocate(bytes).value();
        const Activations expected = scalar_->Prepare(x.data(), tokens, cols, cols, kAllForms, expected_storage.span());
        const Activations found = backend_->Prepare(input.data(), tokens, cols, cols, kAllForms, storage.span());
        EXPECT_EQ(backend_->Fence(), absl::OkStatus());
        EXPECT_TRUE(SamePrepared(found, expected)) << cols;
      }
    }
  }
}

// Norms and activations that are prepared at once, against the scalar operations one after the other.
TEST_P(Exactness, WhatIsPreparedAtOnce) {
  const FfnActivation activations[] = {kSwiGlu, kGeGlu, kSquaredRelu,
                                       kRelu,   kReGlu, {GateFunction::kClampedSwiGlu, {1.702f, 7.0f}}};
  for (int cols : kLengths) {
    const std::vector<float> weight = Gaussian(cols, 2), bias = Gaussian(cols, 3);
    for (const auto& [rows, awkward] : {std::pair(1, false), {3, true}}) {
      const std::vector<float> x = awkward ? Awkward(rows * cols, cols) : Gaussian(rows * cols, cols);
      const std::vector<float> gate = Gaussian(rows * cols, 5);
      for (const InputForms forms : {InputForms{.values = true}, InputForms{.codes = true}, kAllForms}) {
        const size_t bytes = ActivationBytes(rows, cols, forms);
        Buffer expected_storage = Buffer::Allocate(bytes).value(), storage = Buffer::Allocate(bytes).value();
        for (const Norm& norm :
             {Norm{.eps = 1e-6f}, Norm{.weight = weight.data(), .eps = 1e-6f}, Norm{weight.data(), bias.data(), 1e-5f}}) {
          std::vector<float> expected_y = x, y = x;
          scalar_->Normalize(norm, expected_y.data(), rows, cols, expected_y.data());
          const Activations expected = scalar_->Prepare(expected_y.data(), rows, cols, cols, forms, expected_storage.span());
          const Activations found = backend_->NormalizeAndPrepare(norm, y.data(), rows, cols, y.data(), forms, storage.span());
          EXPECT_EQ(backend_->Fence(), absl::OkStatus());
          EXPECT_TRUE(SameBits(y, expected_y)) << cols;
          EXPECT_TRUE(SamePrepared(found, expected)) << cols;
        }
        for (const FfnActivation& activation : activations) {
          std::vector<float> expected_up = x, up = x;
          const int64_t n = int64_t{rows} * cols;
          scalar_->Activate(activation, gate.data(), expected_up.data(), n, expected_up.data());
          const Activations expected = scalar_->Prepare(expected_up.data(), rows, cols, cols, forms, expected_storage.span());
          const Activations found =
              backend_->ActivateAndPrepare(activation, gate.data(), up.data(), rows, cols, forms, storage.span());
          EXPECT_EQ(backend_->Fence(), absl::OkStatus());
          EXPECT_TRUE(SamePrepared(found, expected)) << cols << ", function " << static_cast<int>(activation.function);
        }
      }
    }
  }
}

TEST_P(Exactness, MatMulShapes) {
  for (const Format& format : Formats()) {
    for (int rows : {1, 5, 7, 8, 9, 15, 16, 17, 23, 24, 31, 32, 33, 40, 71}) {
      for (int cols : ColumnsFor(format, {1, 31, 32, 33, 64, 95, 160, 300})) {
        const PackedMatrix matrix = RandomMatrix(format.id, rows, cols, rows * 1000 + cols);
        for (int tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
          if (!Taken(23)) continue;
          const std::vector<float> x = Gaussian(tokens * cols, tokens);
          EXPECT_TRUE(SameBits(Multiply(*backend_, matrix.view, x, tokens, tokens), Multiply(*scalar_, matrix.view, x, tokens)))
              << format.name << " " << rows << "x" << cols << " tokens " << tokens;
        }
      }
    }
  }
}

TEST_P(Exactness, MatMulTokens) {
  for (const Format& format : Formats()) {
    for (int rows : {8, 24, 40}) {
      const int cols = ColumnsFor(format, 96);
      const PackedMatrix matrix = RandomMatrix(format.id, rows, cols, rows);
      for (int tokens : {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 33}) {
        if (!Taken(7)) continue;
        const std::vector<float> x = Gaussian(tokens * cols, tokens);
        EXPECT_TRUE(SameBits(Multiply(*backend_, matrix.view, x, tokens), Multiply(*scalar_, matrix.view, x, tokens)))
            << format.name << " rows " << rows << " tokens " << tokens;
      }
    }
  }
}

// More tokens and columns than kernels take at once.
TEST_P(Exactness, MatMulBeyondOneRange) {
  struct Shape {
    int rows, least, tokens;
  };
  for (const Format& format : Formats()) {
    for (const auto [rows, least, tokens] : {Shape{43, 2500, 100}, Shape{12, 100, 300}, Shape{9, 30000, 7}, Shape{24, 700, 35}}) {
      if (!Taken(11)) continue;
      const int cols = ColumnsFor(format, least);
      const PackedMatrix matrix = RandomMatrix(format.id, rows, cols, 5);
      const std::vector<float> x = Gaussian(static_cast<size_t>(tokens) * cols, 6);
      EXPECT_TRUE(SameBits(Multiply(*backend_, matrix.view, x, tokens), Multiply(*scalar_, matrix.view, x, tokens)))
          << format.name << " " << rows << "x" << cols << " tokens " << tokens;
    }
  }
}

TEST_P(Exactness, MatMulLargeEnoughForThreads) {
  for (const Format& format : Formats()) {
    const int rows = 500, cols = ColumnsFor(format, 608);
    const PackedMatrix matrix = RandomMatrix(format.id, rows, cols, 3);
    for (int tokens : {1, 6, 18}) {
      if (!Taken(5)) continue;
      const std::vector<float> x = Gaussian(tokens * cols, tokens);
      EXPECT_TRUE(SameBits(Multiply(*backend_, matrix.view, x, tokens), Multiply(*scalar_, matrix.view, x, tokens)))
          << format.name << " tokens " << tokens;
    }
  }
}

// Stores are input: any byte may stand where a code or a scale belongs.
TEST_P(Exactness, MatMulOfAnyBytes) {
  const int rows = 24;
  std::mt19937 random(4);
  for (const Format& format : Formats()) {
    const int cols = ColumnsFor(format, 96);
    for (int round = 0; round < 20; ++round) {
      PackedMatrix matrix = RandomMatrix(format.id, rows, cols, 1);
      for (std::byte& byte : matrix.bytes) byte = std::byte(random() & 0xff);
      const int tokens = round % 4 < 2 ? 3 : 17;
      const std::vector<float> x = round % 2 == 0 ? Gaussian(tokens * cols, round) : Awkward(tokens * cols, round);
      EXPECT_TRUE(SameBits(Multiply(*backend_, matrix.view, x, tokens), Multiply(*scalar_, matrix.view, x, tokens)))
          << format.name << " tokens " << tokens;
    }
  }
}

// Every byte, so every code (and q8's -128, which no encoder writes), against the largest sums that activations make.
TEST_P(Exactness, MatMulEveryCode) {
  for (const Format& format : BlockFormats()) {
    const int cols = ColumnsFor(format, 64);
    PackedMatrix matrix = RandomMatrix(format.id, 32, cols, 1);
    for (int fill = 0; fill < 256; ++fill) {
      for (size_t i = 0; i < matrix.bytes.size(); ++i) {
        if (i % format.panel_block_bytes >= format.scale_bytes) matrix.bytes[i] = std::byte(fill);
      }
      for (float value : {1.0f, -1.0f}) {  // codes of 127 or -127 throughout
        for (int tokens : {1, 3, 17}) {
          if (!Taken(31)) continue;
          const std::vector<float> x(tokens * cols, value);
          const std::vector<float> one = Multiply(*scalar_, matrix.view, std::span(x).first(cols), 1);
          std::vector<float> expected;  // tokens that are all the same
          for (int token = 0; token < tokens; ++token) expected.insert(expected.end(), one.begin(), one.end());
          EXPECT_TRUE(SameBits(Multiply(*backend_, matrix.view, x, tokens), expected)) << format.name << " " << fill;
        }
      }
    }
  }
}

// float16 infinity and NaN as the scale of one row, or in one token's activations, show in that row or token alone. nvfp4 has a
// float32 for all rows of a panel.
TEST_P(Exactness, MatMulNonFinite) {
  const int rows = 32, tokens = 21;
  for (const Format& format : BlockFormats()) {
    if (format.scale_bytes < 2 * kPanelRows) continue;  // its scales are all finite
    const int cols = ColumnsFor(format, 96);
    const bool of_panel = format.id == FormatId::kNvfp4;
    for (uint16_t scale : {0x7c00, 0xfc00, 0x7e00}) {
      if (of_panel) scale |= 0x0380;  // a float32's upper half
      PackedMatrix matrix = RandomMatrix(format.id, rows, cols, 2);
      std::memcpy(matrix.bytes.data() + (of_panel ? 1 : 3) * sizeof(scale), &scale, sizeof(scale));  // row 3, first block
      std::vector<float> x = Gaussian(tokens * cols, 3);
      x[2 * cols + 40] = std::numeric_limits<float>::infinity();
      const std::vector<float> y = Multiply(*backend_, matrix.view, x, tokens);
      EXPECT_TRUE(SameBits(y, Multiply(*scalar_, matrix.view, x, tokens))) << format.name << " " << scale;
      for (int token = 0; token < tokens; ++token) {
        for (int row = 0; row < rows; ++row) {
          const bool finite = token != 2 && (of_panel ? row >= kPanelRows : row != 3);
          EXPECT_EQ(std::isfinite(y[token * rows + row]), finite) << format.name << " " << token << " " << row;
        }
      }
    }
  }
}

TEST_P(Exactness, PrepareGivesEachFormAlone) {
  for (int cols : kLengths) {
    const int tokens = 3;
    const std::vector<float> x = Awkward(tokens * cols, cols);
    Buffer both = Buffer::Allocate(ActivationBytes(tokens, cols)).value(), one = Buffer::Allocate(both.size()).value();
    const Activations expected = scalar_->Prepare(x.data(), tokens, cols, cols, kAllForms, both.span());
    const size_t blocks = static_cast<size_t>(tokens) * Blocks(cols);
    const Activations values = backend_->Prepare(x.data(), tokens, cols, cols, {.values = true}, one.span());
    EXPECT_EQ(backend_->Fence(), absl::OkStatus());
    EXPECT_TRUE(SameBits({values.values, blocks * 32}, {expected.values, blocks * 32})) << cols;
    const Activations codes = backend_->Prepare(x.data(), tokens, cols, cols, {.codes = true}, one.span());
    EXPECT_EQ(backend_->Fence(), absl::OkStatus());
    EXPECT_TRUE(SameBits({codes.scales, blocks}, {expected.scales, blocks})) << cols;
    EXPECT_EQ(std::memcmp(codes.codes, expected.codes, blocks * 32), 0) << cols;
    EXPECT_EQ(std::memcmp(codes.sums, expected.sums, blocks * 4), 0) << cols;
  }
}

}  // namespace
}  // namespace moed
