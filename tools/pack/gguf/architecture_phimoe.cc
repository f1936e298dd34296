// phimoe (Phi-3.5-MoE, Phi-mini-MoE): a sparsemixer of two experts, layer norms, biases where the file has them. The jitter of
// the sparsemixer has no key: it is the released models'.
#include "core/base/status.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "phimoe", {.window = true});
  const int window = reader.IntOr("attention.sliding_window", 0, 0, INT32_MAX);
  if (window > 0 && window < spec.max_positions) spec.windows.assign(spec.layers, window);
  for (const std::string_view factors : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
    if (reader.Tensor(factors) != nullptr) {
      reader.Fail(InvalidArgument("tensor \"", factors, "\": RoPE scaling of the kind longrope is not supported"));
    }
  }
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

GgufArchitecture PhiMoeArchitecture() { return {.name = "phimoe", .model_type = "phimoe", .read_spec = ReadSpec}; }

}  // namespace moed
