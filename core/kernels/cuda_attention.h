// What the kernels of queries, keys and values are told of shapes and runs.
#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/backend.h"
#include "core/kernels/cuda_operations.h"
#include "core/kernels/descriptions.h"

namespace moed::cuda {

// Where each row of the runs belongs; `rows` becomes their number.
const KvPlace* PlacesOf(std::span<const KvRun> runs, int page_tokens, Descriptions& descriptions, int& rows);

HeadsOperation HeadsOf(const AttentionShape& shape, const HeadTransform& transform, std::span<const KvRun> runs, float* query,
                       const float* keys, const float* values, Descriptions& descriptions);

struct AttendedRuns {
  std::span<const KvRun> runs;
  std::span<float> scores;  // scratch of ComputeBackend::Attention
  int multiprocessors = 0;
  Descriptions& descriptions;
};
AttentionOperation AttentionOf(const AttentionShape& shape, const float* query, float* output, const AttendedRuns& runs);
AttentionOperation AttentionOf(const LatentShape& shape, const float* query, const float* rotated, int64_t rotated_stride,
                               float* output, const AttendedRuns& runs);

}  // namespace moed::cuda
