// Operations that are others, one after the other.
#include "core/kernels/backend.h"

namespace moed {

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
    const RopeShape rope = {heads, shape.head_dim, transform.rotary_dims, transform.interleaved};
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
