// qwen3moe, and qwen3vlmoe (Qwen3-VL, the text part, whose rotations by place are one in a text): RMS norm over each head of q
// and k; the chosen probabilities are divided by their sum.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadAs(std::string_view family, const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, family);
  spec.qkv_bias = reader.Tensor("blk.0.attn_q.bias") != nullptr;
  spec.o_bias = reader.Tensor("blk.0.attn_output.bias") != nullptr;
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  ReadFfnWidths(reader, spec);
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", true);
  reader.IntOr("n_deepstack_layers", 0, 0, 4096);  // of pictures
  return reader.Finish(std::move(spec));
}

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) { return ReadAs("qwen3_moe", model); }

absl::StatusOr<ModelSpec> ReadVision(const GgufModel& model) { return ReadAs("qwen3_vl_moe_text", model); }

constexpr std::string_view kOmni[] = {"qwen3_omni_moe_text"};

}  // namespace

GgufArchitecture Qwen3MoeArchitecture() { return {.name = "qwen3moe", .model_type = "qwen3_moe", .read_spec = ReadSpec}; }

GgufArchitecture Qwen3VlMoeArchitecture() {
  return {.name = "qwen3vlmoe", .model_type = "qwen3_vl_moe_text", .read_spec = ReadVision, .more_model_types = kOmni};
}

}  // namespace moed
