// What heads of an encoder-decoder add to their scores by the distance of two positions (T5, arXiv 1910.10683, section 2.1). A
// checkpoint has a number for each bucket of distances and each head.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "core/kernels/backend.h"
#include "core/model/spec.h"

namespace moed {

struct Scratch;
class StoreReader;

// The bucket of a key that stands `ahead` positions after its query, negative before it. An encoder has half of them for either
// side, a decoder all for the keys before. In the arithmetic of the reference: logarithms are float32.
int PositionBucket(int ahead, bool both_sides, const EncoderShape& shape);

// PositionBias::table of the numbers (position_buckets, heads) of a checkpoint; its reach is shape.most_distance.
std::vector<float> PositionBiasTable(std::span<const float> numbers, int heads, bool both_sides, const EncoderShape& shape);

// The tables of both halves from the store into the scratch. DATA_LOSS where they cannot be read; the backend's error.
absl::Status FillPositionBiases(const StoreReader& store, const ModelSpec& spec, ComputeBackend& backend, Scratch& scratch);

}  // namespace moed
