#include "tools/pack/gguf/mamba2.h"

#include <utility>

#include "core/base/status.h"
#include "core/kernels/recurrence.h"
#include "core/model/matrix_parts.h"

namespace moed {
namespace {

// Numbers that `whole` has in rows, as one row.
TensorPart OneRow(std::string name, std::string whole, int rows, int cols) {
  return {.name = std::move(name),
          .whole = std::move(whole),
          .whole_shape = {static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)},
          .rows = 1,
          .cols = rows * cols,
          .row_stride = int64_t{rows} * cols};
}

void AddMamba2(const ModelSpec& spec, const std::string& layer, std::vector<TensorPart>& parts) {
  const Mamba2Shape& shape = *spec.mamba2;
  AddMamba2Projections(shape, spec.hidden, layer + "ssm_in.", parts);
  const std::string convolution = layer + "ssm_conv1d.";
  parts.push_back(TapsOf(convolution + "taps", convolution + "weight", shape.ConvolvedWidth(), shape.taps, /*flat=*/true));
  parts.push_back(OneRow(layer + "ssm_a.heads", layer + "ssm_a", shape.heads, 1));
  parts.push_back(OneRow(layer + "ssm_d.heads", layer + "ssm_d", shape.heads, 1));
  parts.push_back(OneRow(layer + "ssm_norm.groups", layer + "ssm_norm.weight", shape.groups, shape.Width() / shape.groups));
}

}  // namespace

void ReadGgufMamba2(GgufSpecReader& reader, ModelSpec& spec) {
  Mamba2Shape shape = {.heads = reader.Int("ssm.time_step_rank", 1, 1024),
                       .groups = reader.Int("ssm.group_count", 1, 1024),
                       .state_dim = reader.Int("ssm.state_size", 1, 1024),
                       .taps = reader.Int("ssm.conv_kernel", 2, kMostTaps)};
  const int inner = reader.Int("ssm.inner_size", 1, 1 << 20);
  if (inner % shape.heads != 0) {
    reader.Fail(InvalidArgument("ssm.inner_size = ", inner, " is no multiple of ssm.time_step_rank = ", shape.heads));
  }
  shape.head_dim = inner / shape.heads;
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (reader.Tensor(StrCat("blk.", layer, ".ssm_conv1d.bias")) != nullptr) shape.convolution_bias = true;
  }
  spec.mamba2 = shape;
}

std::vector<TensorPart> GgufMamba2Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (spec.IsRecurrent(LayerId(layer))) AddMamba2(spec, StrCat("blk.", layer, "."), parts);
  }
  return parts;
}

}  // namespace moed
