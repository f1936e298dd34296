// The matrices that a decoded token is multiplied with, and how long the kernels of this machine take for them.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/kernels/backend.h"
#include "core/model/spec.h"
#include "core/store/description.h"

namespace moed {

// Of weights that one token reads: the whole trunk but an embedding that is not the output matrix as well, and top-k experts of
// each layer at the reference precision.
struct TokenBytes {
  uint64_t trunk = 0;
  uint64_t experts = 0;

  uint64_t all() const { return trunk + experts; }
};
TokenBytes BytesOfToken(const StoreDescription& store, const ModelSpec& spec);

struct ProductLimits {
  uint64_t memory_bytes = 0;  // that stand for the weights, which may be more; an expert and a panel are taken at least
  double seconds = 1;         // a token that has begun is ended
};
// Seconds for the products of one token, the median of several: with weights of any content in the store's formats and shapes,
// read from as much memory as the limits allow. RESOURCE_EXHAUSTED: no memory.
absl::StatusOr<double> MeasureTokenProducts(const StoreDescription& store, const ModelSpec& spec, ComputeBackend& backend,
                                            const ProductLimits& limits, const Clock& clock);

}  // namespace moed
