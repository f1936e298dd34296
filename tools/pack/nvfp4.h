// NVFP4 in checkpoints: the tensors of a matrix made one. A weight is a number of e2m1 times a scale for 16 neighbouring columns
// of its row; the scale is a number of e4m3 times, or divided by, a float32 of the whole tensor, rounded to float32.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "tools/pack/joining.h"

namespace moed {

// compressed-tensors' nvfp4-pack-quantized: "X_packed", "X_scale" and "X_global_scale", which divides, become "X".
absl::Status JoinCompressedNvfp4(SourceTensors& tensors);
// ModelOpt's: "X.weight" of bytes, "X.weight_scale" and "X.weight_scale_2", which multiplies; of a layer's experts in one tensor
// "experts.Y", "experts.Y_weight_scale" and "experts.Y_weight_scale_2" with one number for each or for all of them.
absl::Status JoinModelOptNvfp4(SourceTensors& tensors);

// The same of GGUF: `matrix` has blocks of NVFP4; its number among those of `scales`, one for each matrix, multiplies. Null: 1.
// Whatever has other blocks stays.
absl::Status GiveNvfp4Scale(const SourceTensor* scales, uint64_t index, uint64_t matrices, SourceTensor& matrix);

}  // namespace moed
