// Kernels from the heads of queries, keys and values to attention.
#include <gtest/gtest.h>

#include <span>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/kernels_beside_scalar.h"

namespace moed {
namespace {

class AttentionKernels : public EachKernels {};

// Of many heads more than shared memory holds at once, so that it is used again.
TEST_P(AttentionKernels, Rope) {
  const std::vector<int32_t> positions = {0, 77, 4096};
  const float* const inv_freq = Keep(std::vector<float>{1, 0.3f, 0.1f, 0.01f});
  for (const bool interleaved : {false, true}) {
    for (const int heads : {5, 600}) {
      Compare(Gaussian(static_cast<size_t>(3) * heads * 10, 1), [&](ComputeBackend& backend, float* x) {
        backend.Rope({.heads = heads, .head_dim = 10, .rotary_dims = 8, .interleaved = interleaved, .magnitude = 1.1f}, x, 3,
                     int64_t{10} * heads, positions.data(), inv_freq);
      });
    }
  }
}

// Queries, then what the pages hold.
TEST_P(AttentionKernels, Heads) {
  const int rows = 3;
  const float* const inv_freq = Keep(std::vector<float>{1, 0.3f, 0.1f, 0.01f});
  const float* const norm = Keep(Gaussian(40, 4));
  const float* const values = Keep(Gaussian(rows * 80, 3));
  for (int format = 0; format < kKvFormatCount; ++format) {
    const AttentionShape shape{.heads = 6, .kv_heads = 2, .head_dim = 40, .kv_format = static_cast<KvFormat>(format)};
    const auto page_bytes = static_cast<size_t>(KvPages::PageBytes(shape));
    for (const HeadTransform& transform : {HeadTransform{}, HeadTransform{.rotary_dims = 8, .inv_freq = inv_freq},
                                           HeadTransform{norm, norm, 1e-6f, false, 8, true, inv_freq},
                                           HeadTransform{norm, nullptr, 1e-6f, true, 8, false, inv_freq, 1.2f}}) {
      std::vector<float> all = Gaussian(rows * 240, 1);
      all.resize(all.size() + 2 * page_bytes / sizeof(float));
      Compare(all, [&](ComputeBackend& backend, float* query) {
        std::byte* const first = reinterpret_cast<std::byte*>(query + rows * 240);
        std::byte* const pages[] = {first, first + page_bytes};
        const KvRun runs[] = {{.pages = pages, .position = 62, .tokens = rows}};
        const std::vector<int32_t> positions = {62, 63, 64};
        backend.TransformAndStore(shape, transform, runs, positions.data(), query, Keep(Gaussian(rows * 80, 2)), values);
      });
    }
  }
}

// By a block of threads for all positions of its rows, and by several; of one piece of positions and of more.
TEST_P(AttentionKernels, KeysAndValues) {
  const int positions = 530;
  const std::span<float> none, enough = {Keep(std::vector<float>(30 * 3 * (256 + 8 + 40))), 30 * 3 * (256 + 8 + 40)};
  for (int format = 0; format < kKvFormatCount; ++format) {
    for (const int window : {0, 9, 300}) {
      const AttentionShape shape{.heads = 6,
                                 .kv_heads = 2,
                                 .head_dim = 40,
                                 .scale = 0.3f,
                                 .kv_format = static_cast<KvFormat>(format),
                                 .window = window,
                                 .sinks = window == 0 ? nullptr : Keep(Gaussian(6, 9)),
                                 .bias = {window == 9 ? nullptr : Keep(Gaussian(6 * 41, 10)), 20}};
      const float* const keys = Keep(Gaussian(positions * 80, 1));
      const float* const values = Keep(Gaussian(positions * 80, 2));
      const float* const query = Keep(Gaussian(5 * 240, 3));
      for (const auto& way : {std::pair(none, false), {enough, false}, {enough, true}})
        Compare(std::vector<float>(5 * 240), [&](ComputeBackend& backend, float* output) {
          std::vector<std::byte*> pages;
          for (int i = 0; i < 9; ++i) pages.push_back(Storage(KvPages::PageBytes(shape)).data());
          const KvRun all[] = {{.pages = pages, .position = 0, .tokens = positions}};
          backend.StoreKv(shape, all, keys, values);
          const bool within = window == 0;  // of other positions
          const KvRun runs[] = {{.pages = pages, .position = 3, .tokens = 1, .seen = within ? positions : 0},
                                {.pages = pages, .position = 511, .tokens = 4, .first = within ? 262 : 0}};
          const KvRun of_one_piece[] = {{.pages = pages, .position = 30, .tokens = 4},
                                        {.pages = pages, .position = 255, .tokens = 1}};
          std::vector<float> own(ComputeBackend::AttentionScratchFloats(1, positions));  // of "scalar"
          backend.Attention(shape, way.second ? of_one_piece : runs, query, output, &backend == scalar_.get() ? own : way.first);
        });
    }
  }
}

TEST_P(AttentionKernels, Latents) {
  const int positions = 270;
  const std::span<float> none, enough = {Keep(std::vector<float>(30 * 2 * (256 + 8 + 24))), 30 * 2 * (256 + 8 + 24)};
  for (int format = 0; format < kKvFormatCount; ++format) {
    const LatentShape shape{.heads = 10, .rank = 24, .rotary_dims = 6, .scale = 0.3f, .kv_format = static_cast<KvFormat>(format)};
    const float* const latents = Keep(Gaussian(positions * 24, 1));
    const float* const keys = Keep(Gaussian(positions * 6, 2));
    const float* const rotated = Keep(Gaussian(3 * 10 * 6, 3));
    for (const std::span<float> scores : {none, enough})
      Compare(Gaussian(3 * 240, 4), [&](ComputeBackend& backend, float* x) {
        std::vector<std::byte*> pages;
        for (int i = 0; i < 5; ++i) pages.push_back(Storage(64 * LatentRowBytes(shape.kv_format, 24, 6)).data());
        const KvRun all[] = {{.pages = pages, .position = 0, .tokens = positions}};
        backend.StoreLatent(shape, all, latents, keys);
        const KvRun runs[] = {{.pages = pages, .position = 3, .tokens = 1}, {.pages = pages, .position = 260, .tokens = 2}};
        std::vector<float> own(ComputeBackend::LatentScratchFloats(1, positions));
        backend.AttendLatent(shape, runs, x, rotated, 6, x, &backend == scalar_.get() ? own : scores);
      });
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionKernels, ::testing::ValuesIn(AllKernels()), NameOf);

}  // namespace
}  // namespace moed
