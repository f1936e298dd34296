// llama4 (Llama 4 Scout and Maverick, the text part). What files have no key for is as in the released models: chunks of 8192
// positions, every fourth layer one that sees all and does not rotate, queries that grow every 8192 positions, and heads with a
// norm unless there are Maverick's 128 experts.
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/model/llama4_traits.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr std::string_view kOfSpec[] = {kGgufRopeFactors};
constexpr int kChunk = 8192, kFloorScale = 8192, kPeriod = 4, kExpertsOfMaverick = 128;
constexpr double kTemperature = 0.1;

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "llama4_text", {.window = true, .gating = true});
  ReadGgufRopeFactors(reader, spec);
  ReadFfnWidths(reader, spec);
  spec.shared_ffn = spec.expert_ffn;
  reader.Only("expert_shared_count", {0, 1});
  reader.Only("expert_gating_func", {0, 2});  // sigmoid
  std::vector<bool> rotate(static_cast<size_t>(spec.layers), true);
  // 0: no chunks, and all layers rotate; other numbers count for nothing.
  const bool chunks = reader.IntOr("attention.sliding_window", kChunk, 0, INT32_MAX) > 0;
  for (int layer = 0; layer < spec.layers && chunks; ++layer) rotate[static_cast<size_t>(layer)] = layer % kPeriod != kPeriod - 1;
  if (chunks && reader.LayersOr("attention.sliding_window_pattern", spec.layers, kPeriod) != rotate) {
    reader.Fail(InvalidArgument("attention.sliding_window_pattern names other layers than every ", kPeriod, "th"));
  }
  if (chunks) {
    spec.windows_are_chunks = true;
    for (const bool rotates : rotate) spec.windows.push_back(rotates ? kChunk : 0);
  }
  SetLlama4Traits(spec, rotate, spec.experts != kExpertsOfMaverick, kTemperature, kFloorScale);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture Llama4Architecture() {
  return {.name = "llama4", .model_type = "llama4_text", .read_spec = ReadSpec, .of_spec = kOfSpec};
}

}  // namespace moed
