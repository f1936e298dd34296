// phimoe (Phi-3.5-MoE, Phi-mini-MoE): a sparsemixer of two experts, layer norms, biases where the file has them, LongRoPE. The
// jitter of the sparsemixer has no key: it is the released models'.
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr std::string_view kShort = "rope_factors_short.weight", kLong = "rope_factors_long.weight";
constexpr std::string_view kOfSpec[] = {kShort, kLong};

FrequencyDivisors ReadDivisors(GgufSpecReader& reader, std::string_view tensor, const ModelSpec& spec) {
  const absl::StatusOr<std::vector<float>> numbers = reader.Floats(tensor, static_cast<size_t>(spec.RotaryDims() / 2));
  if (!numbers.ok()) reader.Fail(numbers.status());
  FrequencyDivisors divided = {.attention_factor = reader.NumberOr("rope.scaling.attn_factor", 1, 1e-3, 1e3)};
  if (numbers.ok()) divided.divisors.assign(numbers->begin(), numbers->end());
  return divided;
}

// The tensors say whether there is any.
void ReadLongRope(GgufSpecReader& reader, ModelSpec& spec) {
  reader.OnlyText("rope.scaling.type", {"none", "longrope"});
  reader.Only("rope.scaling.factor", {0, 1});
  const bool scaled = reader.Tensor(kShort) != nullptr || reader.Tensor(kLong) != nullptr;
  const int original = reader.IntOr("rope.scaling.original_context_length", 0, scaled ? 1 : 0, spec.max_positions);
  if (!scaled) return;
  SetLongRope(ReadDivisors(reader, kShort, spec), ReadDivisors(reader, kLong, spec), original, spec);
}

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "phimoe", {.window = true, .rope_scaling = true});
  const int window = reader.IntOr("attention.sliding_window", 0, 0, INT32_MAX);
  if (window > 0 && window < spec.max_positions) spec.windows.assign(spec.layers, window);
  ReadLongRope(reader, spec);
  spec.qkv_bias = reader.Tensor("blk.0.attn_q.bias") != nullptr;
  spec.o_bias = reader.Tensor("blk.0.attn_output.bias") != nullptr;
  spec.head_bias = reader.Tensor("output.bias") != nullptr;
  spec.layer_norm = true;
  ReadOneFfnWidth(reader, spec);
  reader.Only("expert_used_count", {2});
  spec.router_scoring = RouterScoring::kSparsemixer;
  spec.router_jitter = 0.01;
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture PhiMoeArchitecture() {
  return {.name = "phimoe", .model_type = "phimoe", .read_spec = ReadSpec, .of_spec = kOfSpec};
}

}  // namespace moed
