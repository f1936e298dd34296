// What holds for every backend: names, batches, jobs side by side.
#include "core/kernels/backend.h"

#include <cmath>
#include <cstring>
#include <string>
#include <tuple>

#include "absl/strings/ascii.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/fixtures.h"
#include "tests/kernels/tested_backends.h"

namespace moed {
namespace {

using ::testing::HasSubstr;

TEST(Backends, MadeByName) {
  InlineExecutor executor;
  ASSERT_EQ(ComputeBackends().front().name, "scalar");
  EXPECT_TRUE(ComputeBackends().front().supported());
  std::string_view best;
  for (const ComputeBackendRow& row : ComputeBackends()) {
    const auto backend = MakeComputeBackend(row.name, executor);
    if (row.supported()) {
      ASSERT_TRUE(backend.ok()) << backend.status();
      EXPECT_EQ((*backend)->name(), row.name);
      EXPECT_EQ((*backend)->threads(), 1);
      if (row.name != "cuda") best = row.name;  // a device is taken by name
    } else {
      EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(absl::AsciiStrToLower(backend.status().message()), HasSubstr(std::string(row.name)));
    }
  }
  EXPECT_EQ(MakeComputeBackend("auto", executor).value()->name(), best);
}

TEST(Backends, UnknownNameListsTheKnown) {
  InlineExecutor executor;
  for (std::string_view name : {"", "AVX2", "cuda9"}) {
    const absl::Status status = MakeComputeBackend(name, executor).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("auto"));
    for (const ComputeBackendRow& row : ComputeBackends())
      EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(row.name)));
  }
}

class EveryBackend : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    auto backend = MakeTestedBackend(GetParam(), *executor_);
    if (backend.status().code() == absl::StatusCode::kFailedPrecondition) GTEST_SKIP() << backend.status();
    backend_ = std::move(backend).value();
  }
  std::unique_ptr<Executor> executor_ = MakeThreadPool(2);
  std::unique_ptr<ComputeBackend> backend_;
};

TEST_P(EveryBackend, ATokenNeverDependsOnItsBatch) {
  const int tokens = 9, rows = 43;
  for (const Format& format : Formats()) {
    const int cols = ColumnsFor(format, 130);
    const std::vector<float> x = Gaussian(tokens * cols, 5);
    const PackedMatrix matrix = RandomMatrix(format.id, rows, cols, 6);
    const std::vector<float> together = Multiply(*backend_, matrix.view, x, tokens);
    for (int first = 0; first < tokens; ++first) {
      for (int count = 1; first + count <= tokens; ++count) {
        const std::vector<float> some = Multiply(*backend_, matrix.view, std::span(x).subspan(first * cols, count * cols), count);
        EXPECT_TRUE(SameBits(some, std::span(together).subspan(first * rows, count * rows)))
            << format.name << " tokens " << first << " to " << first + count;
      }
    }
  }
}

TEST_P(EveryBackend, JobsSideBySideAreTheSameAsAlone) {
  struct Shape {
    int rows, cols, tokens;
    FormatId format = FormatId::kF32;
  };
  const Shape kinds[] = {{100, 64, 3}, {1, 40, 1}, {17, 640, 8}, {333, 96, 2}, {64, 33, 1}, {7, 128, 5}};
  std::vector<Shape> shapes;  // every format, each in two shapes
  for (const Format& format : Formats()) {
    for (int i = 0; i < 2; ++i) {
      shapes.push_back(kinds[shapes.size() % std::size(kinds)]);
      shapes.back().format = format.id;
      shapes.back().cols = ColumnsFor(format, shapes.back().cols);
    }
  }
  std::vector<PackedMatrix> matrices;
  std::vector<std::vector<float>> inputs, outputs, expected;
  std::vector<Buffer> storage;
  std::vector<Activations> activations;
  for (const Shape& s : shapes) {
    matrices.push_back(RandomMatrix(s.format, s.rows, s.cols, s.rows));
    inputs.push_back(Gaussian(s.tokens * s.cols, s.cols));
    expected.push_back(Multiply(*backend_, matrices.back().view, inputs.back(), s.tokens));
    outputs.emplace_back(s.tokens * s.rows);
    storage.push_back(Buffer::Allocate(ActivationBytes(s.tokens, s.cols)).value());
    activations.push_back(backend_->Prepare(inputs.back().data(), s.tokens, s.cols, s.cols, kAllForms, storage.back().span()));
  }
  std::vector<MatMulJob> jobs;
  for (size_t i = 0; i < shapes.size(); ++i) {
    jobs.push_back({matrices[i].view, &activations[i], outputs[i].data(), shapes[i].rows});
  }
  backend_->MatMul(jobs);
  EXPECT_EQ(backend_->Fence(), absl::OkStatus());
  for (size_t i = 0; i < jobs.size(); ++i) EXPECT_TRUE(SameBits(outputs[i], expected[i])) << "job " << i;
}

// Of more tokens and rows than are finished together.
TEST_P(EveryBackend, WhatAJobMakesOfItsProduct) {
  for (const auto& [rows, cols, tokens] : {std::tuple(35, 64, 1), {300, 32, 20}, {19, 40, 150}, {4200, 32, 1}}) {
    const PackedMatrix matrix = RandomMatrix(FormatId::kQ8, rows, cols, 1);
    const std::vector<float> x = Gaussian(static_cast<size_t>(tokens) * cols, 2), bias = Gaussian(rows, 3);
    const std::vector<float> product = Multiply(*backend_, matrix.view, x, tokens);
    const std::vector<float> before = Gaussian(product.size(), 4);
    Buffer storage = Buffer::Allocate(ActivationBytes(tokens, cols)).value();
    const Activations input = backend_->Prepare(x.data(), tokens, cols, cols, kAllForms, storage.span());
    for (const float* biases : {static_cast<const float*>(nullptr), bias.data()}) {
      for (const float scale : {1.0f, 0.3f}) {
        for (const bool adds : {false, true}) {
          std::vector<float> y = before, expected = before;
          const MatMulJob job{matrix.view, &input, y.data(), rows, biases, scale, adds};
          backend_->MatMul({&job, 1});
          EXPECT_EQ(backend_->Fence(), absl::OkStatus());
          for (size_t i = 0; i < y.size(); ++i) {
            const float sum = biases == nullptr ? product[i] : product[i] + biases[i % rows];
            expected[i] = adds ? std::fma(scale, sum, before[i]) : scale * sum;
          }
          EXPECT_TRUE(SameBits(y, expected)) << rows << " rows, " << tokens << " tokens, scale " << scale << ", adds " << adds;
        }
      }
    }
  }
}

TEST_P(EveryBackend, AChoiceSaysWhichMatrixAndWhichBias) {
  constexpr int kRows = 19, kCols = 64;
  const PackedMatrix matrix = RandomMatrix(FormatId::kQ4, kRows, kCols, 1);
  const std::byte* const matrices[] = {nullptr, matrix.view.data};
  const ExpertChoice choice = {.expert = 1};
  const std::vector<float> x = Gaussian(kCols, 2), biases = Gaussian(2 * kRows, 3);
  Buffer storage = Buffer::Allocate(ActivationBytes(1, kCols)).value();
  const Activations input = backend_->Prepare(x.data(), 1, kCols, kCols, kAllForms, storage.span());
  std::vector<float> y(kRows), expected(kRows);
  MatMulJob job = {matrix.view, &input, expected.data(), kRows, &biases[kRows]};
  backend_->MatMul({&job, 1});
  job = {{FormatId::kQ4, kRows, kCols}, &input, y.data(), kRows, biases.data()};
  job.choice = &choice;
  job.matrices = matrices;
  backend_->MatMul({&job, 1});
  EXPECT_EQ(backend_->Fence(), absl::OkStatus());
  EXPECT_TRUE(SameBits(y, expected));
}

TEST_P(EveryBackend, WritesOnlyTheRowsThereAre) {
  for (const Format& format : Formats()) {
    for (int rows = 1; rows <= 17; ++rows) {
      const int tokens = rows % 2 == 0 ? 5 : 18, cols = ColumnsFor(format, 32), stride = rows + 11;
      const PackedMatrix matrix = RandomMatrix(format.id, rows, cols, 1);
      const std::vector<float> x = Gaussian(tokens * cols, 2);
      Buffer storage = Buffer::Allocate(ActivationBytes(tokens, cols)).value();
      const Activations activations = backend_->Prepare(x.data(), tokens, cols, cols, kAllForms, storage.span());
      std::vector<float> y(tokens * stride, -77.0f);
      const MatMulJob job{matrix.view, &activations, y.data(), stride};
      backend_->MatMul({&job, 1});
      EXPECT_EQ(backend_->Fence(), absl::OkStatus());
      for (int i = 0; i < tokens * stride; ++i) EXPECT_EQ(y[i] == -77.0f, i % stride >= rows) << format.name << " " << rows;
    }
  }
}

TEST_P(EveryBackend, EmbedsTheRowsOfItsTokens) {
  for (const Format& format : Formats()) {
    const int cols = ColumnsFor(format, 70);
    const PackedMatrix matrix = RandomMatrix(format.id, 50, cols, 3);
    const TokenId tokens[] = {TokenId(49), TokenId(0), TokenId(7), TokenId(0)};
    std::vector<float> y(std::size(tokens) * cols), row(cols);
    backend_->Embed(matrix.view, tokens, y.data());
    EXPECT_EQ(backend_->Fence(), absl::OkStatus());
    for (size_t i = 0; i < std::size(tokens); ++i) {
      DecodeRow(format.id, matrix.view.data, cols, tokens[i].value(), row.data());
      EXPECT_TRUE(SameBits(std::span(y).subspan(i * cols, cols), row)) << format.name << " token " << i;
    }
  }
}

TEST_P(EveryBackend, GathersRowsInEveryForm) {
  const int cols = 70, tokens = 60;
  const std::vector<float> x = Gaussian(tokens * cols, 4);
  std::vector<int32_t> rows;
  for (int i = 0; i < 50; ++i) rows.push_back(i * 7 % tokens);
  std::vector<float> picked(rows.size() * cols);
  backend_->GatherRows(x.data(), cols, rows, picked.data());
  EXPECT_EQ(backend_->Fence(), absl::OkStatus());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_TRUE(SameBits(std::span(picked).subspan(i * cols, cols), std::span(x).subspan(rows[i] * cols, cols)));
  }
  const int count = static_cast<int>(rows.size());
  for (const InputForms forms : {InputForms{.values = true}, InputForms{.codes = true}, kAllForms}) {
    std::vector<Buffer> storage;
    for (int i = 0; i < 3; ++i) storage.push_back(Buffer::Allocate(ActivationBytes(tokens, cols, forms)).value());
    const Activations all = backend_->Prepare(x.data(), tokens, cols, cols, forms, storage[0].span());
    const Activations gathered = backend_->Gather(all, rows, storage[1].span());
    backend_->Prepare(picked.data(), count, cols, cols, forms, storage[2].span());
    EXPECT_EQ(backend_->Fence(), absl::OkStatus());
    EXPECT_EQ(gathered.tokens, count);
    EXPECT_EQ(gathered.cols, cols);
    EXPECT_EQ(gathered.values == nullptr, !forms.values);
    EXPECT_EQ(gathered.codes == nullptr, !forms.codes);
    EXPECT_EQ(std::memcmp(storage[1].data(), storage[2].data(), ActivationBytes(count, cols, forms)), 0);
  }
}

TEST_P(EveryBackend, NothingToDoIsFine) {
  backend_->MatMul({});
  backend_->StoreKv({.heads = 2, .kv_heads = 1, .head_dim = 4, .scale = 1}, {}, nullptr, nullptr);
  backend_->Attention({.heads = 2, .kv_heads = 1, .head_dim = 4, .scale = 1}, {}, nullptr, nullptr, {});
  backend_->StoreLatent({.heads = 2, .rank = 8, .rotary_dims = 2, .scale = 1}, {}, nullptr, nullptr);
  backend_->AttendLatent({.heads = 2, .rank = 8, .rotary_dims = 2, .scale = 1}, {}, nullptr, nullptr, 2, nullptr, {});
  backend_->Activate(kSwiGlu, nullptr, nullptr, 0, nullptr);
  backend_->Softmax(nullptr, 0, 5);
  backend_->Embed({}, {}, nullptr);
  backend_->GatherRows(nullptr, 5, {}, nullptr);
  backend_->Route({.experts = 5, .top_k = 2}, nullptr, 0, nullptr);
  backend_->Combine({.cols = 5, .top_k = 2});
  EXPECT_EQ(backend_->Fence(), absl::OkStatus());
  backend_->Add(nullptr, nullptr, 0);
  Buffer storage = Buffer::Allocate(ActivationBytes(0, 64) + 1).value();
  const Activations activations = backend_->Prepare(nullptr, 0, 64, 64, kAllForms, storage.span());
  const PackedMatrix matrix = RandomMatrix(FormatId::kQ8, 8, 64, 1);
  const MatMulJob job{matrix.view, &activations, nullptr, 8};
  backend_->MatMul({&job, 1});
  EXPECT_EQ(backend_->Fence(), absl::OkStatus());
  EXPECT_EQ(activations.tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, EveryBackend, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& info) { return TestName(info.param); });

}  // namespace
}  // namespace moed
