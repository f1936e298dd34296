// Operations that are others, one after the other.
#include "core/kernels/backend.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/kernels/half_storage.h"

namespace moed {

absl::Status ComputeBackend::OpenFastMatmul() {
  return FailedPrecondition("the compute backend '", name(), "' has exact products alone; 'cuda' has others");
}

size_t ComputeBackend::HalfProductBytes(int tokens, int rows, int cols) {
  constexpr size_t kMostWeightBytes = 32 << 20;
  const auto all = static_cast<size_t>(CeilDiv(rows, kPanelRows)) * kPanelRows;
  const size_t inner = static_cast<size_t>(Blocks(cols)) * kBlockColumns, row_bytes = inner * sizeof(uint16_t);
  const size_t at_once = std::clamp<size_t>(kMostWeightBytes / row_bytes / kPanelRows * kPanelRows, kPanelRows, all);
  return HalfStorage::Bytes(static_cast<size_t>(tokens), at_once, inner);
}

Activations ComputeBackend::NormalizeAndPrepare(const Norm& norm, const float* x, int rows, int cols, float* y, InputForms forms,
                                                std::span<std::byte> storage) {
  Normalize(norm, x, rows, cols, y);
  return Prepare(y, rows, cols, cols, forms, storage);
}

Activations ComputeBackend::ActivateAndPrepare(const FfnActivation& activation, const float* gate, float* up, int rows, int cols,
                                               InputForms forms, std::span<std::byte> storage) {
  Activate(activation, gate, up, int64_t{rows} * cols, up);
  return Prepare(up, rows, cols, cols, forms, storage);
}

void ComputeBackend::TransformAndStore(const AttentionShape& shape, const HeadTransform& transform, std::span<const KvRun> runs,
                                       const int32_t* positions, float* query, float* keys, const float* values) {
  int rows = 0;
  for (const KvRun& run : runs) rows += run.tokens;
  const auto normalize = [&](const float* weight, float* x, int heads) {
    if (weight != nullptr) Normalize({.weight = weight, .eps = transform.eps}, x, rows * heads, shape.head_dim, x);
  };
  const auto rotate = [&](float* x, int heads) {
    const RopeShape rope = {heads, shape.head_dim, transform.rotary_dims, transform.interleaved, transform.magnitude};
    if (rope.rotary_dims > 0) Rope(rope, x, rows, int64_t{heads} * shape.head_dim, positions, transform.inv_freq);
  };
  const auto apply = [&](const float* weight, float* x, int heads) {
    if (!transform.norm_last) normalize(weight, x, heads);
    rotate(x, heads);
    if (transform.norm_last) normalize(weight, x, heads);
  };
  apply(transform.query_norm, query, shape.heads);
  apply(transform.key_norm, keys, shape.kv_heads);
  StoreKv(shape, runs, keys, values);
}

}  // namespace moed
