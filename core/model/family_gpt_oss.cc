// gpt-oss: a sink for each head, a sliding window in every other layer, YaRN, biases everywhere, a clamped SwiGLU. The router's
// softmax is over the chosen experts: that over all of them, the chosen ones divided by their sum.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr std::string_view kBlock = "mlp";

std::vector<std::string> EveryOtherSlides(int layers) {
  std::vector<std::string> types;
  for (int layer = 0; layer < layers; ++layer) types.emplace_back(layer % 2 == 0 ? "sliding_attention" : "full_attention");
  return types;
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.attention_bias = true, .layer_types = true, .quantization = true});
  // Its absence means YaRN with factors of a release to transformers.
  if (!config.Has("rope_scaling") && !config.Has("rope_parameters")) {
    config.Fail(InvalidArgument("config.json: key rope_scaling (or rope_parameters) is missing"));
  }
  ReadWindows(config, spec, EveryOtherSlides(spec.layers));
  spec.qkv_bias = spec.o_bias = config.BoolOr("attention_bias", true);
  spec.attention_sinks = spec.router_bias = spec.expert_bias = true;
  spec.swiglu_limits = {.alpha = config.NumberOr("swiglu_alpha", 1.702, 1e-3, 1e3),
                        .limit = config.NumberOr("swiglu_limit", 7.0, 1e-3, 1e6)};
  spec.experts = config.Int(config.Spelling("num_local_experts", "num_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("intermediate_size", 1, 1 << 20);
  spec.norm_topk_prob = true;
  config.Spelling("num_experts_per_tok", "experts_per_token");
  config.IntOr("initial_context_length", 0, 0, INT32_MAX);  // says again what rope_scaling says
  config.ReadQuantization("mxfp4");
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  return DecoderTensors(spec, {.block = kBlock, .router = "router"});
}

// As released: MXFP4, outputs before inputs. `first`, `step`: the rows of the tensor that are the part's.
void AddMxfp4Parts(const ModelSpec& spec, LayerId layer, ExpertPart part, std::vector<TensorPart>& parts) {
  const bool down = part == ExpertPart::kDown;
  const int rows = down ? spec.hidden : spec.expert_ffn, cols = down ? spec.expert_ffn : spec.hidden;
  const int step = down ? 1 : 2, first = part == ExpertPart::kUp ? 1 : 0;
  const std::string prefix =
      StrCat("model.layers.", layer.value(), ".", kBlock, ".experts.", down ? "down_proj" : "gate_up_proj");
  for (int64_t expert = 0; expert < spec.experts; ++expert) {
    parts.push_back({.name = MlpExpertTensor(layer, static_cast<int>(expert), part),
                     .whole = prefix + "_blocks",
                     .scales = prefix + "_scales",
                     .whole_shape = ShapeOf({spec.experts, rows * step, cols / 32, 16}),
                     .rows = rows,
                     .cols = cols,
                     .offset = (expert * rows * step + first) * cols,
                     .row_stride = int64_t{cols} * step});
  }
}

// Gate and up interleave; the experts' matrices are transposed (inputs, outputs), all experts of a layer in one tensor.
void AddExpertParts(const ModelSpec& spec, LayerId layer, std::vector<TensorPart>& parts) {
  const int64_t hidden = spec.hidden, ffn = spec.expert_ffn;
  const std::string prefix = StrCat("model.layers.", layer.value(), ".", kBlock, ".experts.");
  for (const ExpertPart part : {ExpertPart::kGate, ExpertPart::kUp}) {
    const int64_t first = part == ExpertPart::kGate ? 0 : 1;
    for (int64_t expert = 0; expert < spec.experts; ++expert) {
      parts.push_back({.name = MlpExpertTensor(layer, static_cast<int>(expert), part),
                       .whole = prefix + "gate_up_proj",
                       .whole_shape = ShapeOf({spec.experts, hidden, 2 * ffn}),
                       .rows = spec.expert_ffn,
                       .cols = spec.hidden,
                       .offset = expert * hidden * 2 * ffn + first,
                       .row_stride = 2,
                       .col_stride = 2 * ffn});
    }
    // Not within the braces: there g++ 12 destroys what the other members hold.
    const std::string_view bias = part == ExpertPart::kGate ? "gate_proj_bias" : "up_proj_bias";
    parts.push_back({.name = StrCat(prefix, bias),
                     .whole = prefix + "gate_up_proj_bias",
                     .whole_shape = ShapeOf({spec.experts, 2 * ffn}),
                     .rows = spec.experts,
                     .cols = spec.expert_ffn,
                     .offset = first,
                     .row_stride = 2 * ffn,
                     .col_stride = 2});
  }
  for (int64_t expert = 0; expert < spec.experts; ++expert) {
    parts.push_back({.name = MlpExpertTensor(layer, static_cast<int>(expert), ExpertPart::kDown),
                     .whole = prefix + "down_proj",
                     .whole_shape = ShapeOf({spec.experts, ffn, hidden}),
                     .rows = spec.hidden,
                     .cols = spec.expert_ffn,
                     .offset = expert * ffn * hidden,
                     .row_stride = 1,
                     .col_stride = hidden});
  }
}

std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (int layer = 0; layer < spec.layers; ++layer) {
    AddExpertParts(spec, LayerId(layer), parts);
    for (const ExpertPart part : {ExpertPart::kGate, ExpertPart::kUp, ExpertPart::kDown}) {
      AddMxfp4Parts(spec, LayerId(layer), part, parts);
    }
  }
  return parts;
}

}  // namespace

Family GptOssFamily() { return {"gpt_oss", ReadSpec, MlpExpertTensor, TrunkTensors, Parts}; }

}  // namespace moed
