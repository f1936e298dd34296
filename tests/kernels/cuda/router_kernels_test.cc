// Kernels of routers, and those that read what routers chose.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "core/base/status.h"
#include "tests/kernels/cuda/kernels_beside_scalar.h"

namespace moed {
namespace {

class RouterKernels : public EachKernels {};

TEST_P(RouterKernels, Experts) {
  const int rows = 3, experts = 34, top_k = 4, cols = 50;
  const RouterShape shape{.experts = experts,
                          .top_k = top_k,
                          .normalize = true,
                          .scoring = RouterScoring::kSigmoid,
                          .correction = Keep(Gaussian(experts, 1)),
                          .groups = 2,
                          .kept_groups = 1,
                          .epsilon = 1e-6f};
  const std::vector<float> logits = Gaussian(rows * experts, 2, 3.0f);
  float* const own = Keep(logits);
  Compare(std::vector<ExpertChoice>(rows * top_k), [&](ComputeBackend& backend, ExpertChoice* choices) {
    std::memcpy(own, logits.data(), logits.size() * sizeof(float));
    backend.Route(shape, own, rows, choices);
  });
  Compare(logits, [&](ComputeBackend& backend, float* x) { backend.Rank(shape, x, rows); });
  Compare(logits, [&](ComputeBackend& backend, float* x) { backend.Rank({.experts = experts, .top_k = top_k}, x, rows); });

  std::vector<int32_t> places(rows * top_k);
  std::iota(places.begin(), places.end(), 0);
  places[5] = kNoOutput;
  const CombineJob job{.rows = rows,
                       .cols = cols,
                       .top_k = top_k,
                       .choices = Keep(std::vector<ExpertChoice>(rows * top_k, {.expert = 3, .probability = 0.3f})),
                       .expert_scales = Keep(Gaussian(experts, 3)),
                       .places = places,
                       .outputs = Keep(Gaussian(rows * top_k * cols, 4)),
                       .shared = Keep(Gaussian(rows * cols, 5)),
                       .shared_gate = Keep(Gaussian(rows, 6))};
  Compare(Gaussian(rows * cols, 7), [&](ComputeBackend& backend, float* x) {
    CombineJob with = job;
    with.x = x;
    backend.Combine(with);
  });
}

// Without a wait between, or after the host has changed them.
TEST_P(RouterKernels, WhatARouterChose) {
  const int rows = 3, experts = 6, top_k = 2, cols = 40;
  const std::vector<int32_t> places = {0, 1, 2, 3, 4, 5};
  const float* const outputs = Keep(Gaussian(rows * top_k * cols, 4));
  std::vector<const std::byte*> matrices;
  for (int expert = 0; expert < experts; ++expert) {
    matrices.push_back(Keep(RandomMatrix(FormatId::kQ4, cols, cols, static_cast<uint32_t>(expert))).data);
  }
  const InputForms forms = InputForms::Of({FormatId::kQ4});
  for (const int waits : {0, 1}) {
    const std::vector<float> logits = Gaussian(rows * experts, 2, 3.0f);
    Compare(Gaussian(rows * (1 + top_k) * cols, 7), [&](ComputeBackend& backend, float* x) {
      auto* const choices = Keep(std::vector<ExpertChoice>(rows * top_k));
      float* const scores = Keep(logits);
      backend.Route({.experts = experts, .top_k = top_k}, scores, 2, choices);
      // Once more for the row in the middle: the three rows' choices are of three operations.
      backend.Route({.experts = experts, .top_k = top_k}, scores + 2 * experts, 1, choices + top_k);
      backend.Route({.experts = experts, .top_k = top_k}, scores, 1, choices + 2 * top_k);
      if (waits > 0) {
        ASSERT_EQ(backend.Fence(), absl::OkStatus());
        choices[top_k].expert = 0;
      }
      backend.Combine(
          {.rows = rows, .cols = cols, .top_k = top_k, .choices = choices, .places = places, .outputs = outputs, .x = x});
      const Activations input = backend.Prepare(outputs, 1, cols, cols, forms, Storage(ActivationBytes(1, cols, forms)));
      std::vector<MatMulJob> jobs;
      for (int slot = 0; slot < rows * top_k; ++slot) {
        jobs.push_back({.weights = {FormatId::kQ4, cols, cols},
                        .input = &input,
                        .output = x + (rows + slot) * cols,
                        .output_stride = cols,
                        .choice = choices + slot,
                        .matrices = matrices});
      }
      backend.MatMul(jobs);
    });
  }
}

// Scores, choices and ranks of rows with ties, with experts that are masked, and with what is no number or infinite.
TEST_P(RouterKernels, RoutersOfAllShapes) {
  struct Sizes {
    int experts, groups, kept, most;
  };
  const int rows = 4;
  uint32_t seed = 0;
  for (const Sizes& sizes : {Sizes{5, 1, 1, 5}, Sizes{128, 1, 1, 9}, Sizes{48, 8, 3, 18}, Sizes{160, 40, 11, 40},
                             Sizes{256, 8, 4, 8}, Sizes{300, 1, 1, 10}}) {
    for (const RouterScoring scoring :
         {RouterScoring::kSoftmax, RouterScoring::kSigmoid, RouterScoring::kSparsemixer, RouterScoring::kSigmoidOfChosen}) {
      for (const bool corrects : {false, true}) {
        for (const bool strange : {false, true}) {
          std::mt19937 random(++seed);
          const RouterShape shape{.experts = sizes.experts,
                                  .top_k = scoring == RouterScoring::kSparsemixer ? 2 : sizes.most,
                                  .normalize = random() % 2 == 0,
                                  .scoring = scoring,
                                  .correction = corrects ? Keep(Gaussian(sizes.experts, seed, 0.1f)) : nullptr,
                                  .groups = sizes.groups,
                                  .kept_groups = sizes.kept,
                                  .group_rank = random() % 2 == 0 ? GroupRank::kLargestKey : GroupRank::kTwoLargestKeys,
                                  .epsilon = 1e-6f,
                                  .jitter = 0.01f};
          SCOPED_TRACE(StrCat(sizes.experts, " experts, seed ", seed));
          const auto scores = static_cast<size_t>(rows) * sizes.experts;
          std::vector<float> x = Gaussian(scores, seed, 2.0f);
          for (size_t i = 0; i < scores / 2; ++i) x[i] = std::rint(x[i]);  // ties, and zeros of either sign
          for (size_t i = 0; i < scores; i += 5) x[i] = -INFINITY;
          if (strange) x[random() % scores] = NAN, x[random() % scores] = INFINITY;
          Compare(x, [&](ComputeBackend& backend, float* logits) { backend.Rank(shape, logits, rows); });
          x.resize(scores + size_t{2} * rows * shape.top_k);
          Compare(x, [&](ComputeBackend& backend, float* logits) {
            backend.Route(shape, logits, rows, reinterpret_cast<ExpertChoice*>(logits + scores));
          });
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, RouterKernels, ::testing::ValuesIn(AllKernels()), NameOf);

}  // namespace
}  // namespace moed
