#include "tools/pack/gguf/architecture.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/numbers.h"
#include "core/base/status.h"
#include "tools/pack/gguf/architectures.h"

namespace moed {
namespace {

constexpr GgufName kWholeNames[] = {
    {"embed", "token_embd.weight"},
    {"head", "output.weight"},
    {"head_bias", "output.bias"},
    {"final_norm", "output_norm.weight"},
    {"final_norm_bias", "output_norm.bias"},
};

constexpr GgufName kLayerNames[] = {
    {"attn_norm", "attn_norm.weight"},
    {"attn_norm_bias", "attn_norm.bias"},
    {"q", "attn_q.weight"},
    {"k", "attn_k.weight"},
    {"v", "attn_v.weight"},
    {"o", "attn_output.weight"},
    {"q_bias", "attn_q.bias"},
    {"k_bias", "attn_k.bias"},
    {"v_bias", "attn_v.bias"},
    {"o_bias", "attn_output.bias"},
    {"q_norm", "attn_q_norm.weight"},
    {"k_norm", "attn_k_norm.weight"},
    {"ffn_norm", "ffn_norm.weight"},
    {"ffn_norm_bias", "ffn_norm.bias"},
    {"router", "ffn_gate_inp.weight"},
    {"router_bias", "ffn_gate_inp.bias"},
    {"router_correction", "exp_probs_b.bias"},
    {"shared.gate", "ffn_gate_shexp.weight"},
    {"shared.up", "ffn_up_shexp.weight"},
    {"shared.down", "ffn_down_shexp.weight"},
    {"shared_gate", "ffn_gate_inp_shexp.weight"},
    {"dense.gate", "ffn_gate.weight"},
    {"dense.up", "ffn_up.weight"},
    {"dense.down", "ffn_down.weight"},
};

constexpr std::string_view kParts[kExpertParts] = {"gate", "up", "down"};

// 3 and "attn_q.weight" of "blk.3.attn_q.weight"; nothing of a tensor that belongs to no layer.
std::optional<std::pair<int, std::string_view>> LayerAndRest(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  if (!name.starts_with(kBlock)) return std::nullopt;
  name.remove_prefix(kBlock.size());
  const size_t dot = name.find('.');
  int layer;
  if (dot == name.npos || !absl::SimpleAtoi(ToAbsl(name.substr(0, dot)), &layer)) return std::nullopt;
  return std::pair(layer, name.substr(dot + 1));
}

void AddNames(std::span<const GgufName> table, std::string_view store_name, std::string_view prefix,
              std::vector<std::string>& names) {
  for (const auto& [known, name] : table) {
    if (known == store_name) names.push_back(StrCat(prefix, name));
  }
}

}  // namespace

bool GgufArchitecture::Runs(std::string_view family) const {
  return family == model_type || std::ranges::find(more_model_types, family) != more_model_types.end();
}

std::vector<std::string> GgufArchitecture::TrunkNames(std::string_view store_name) const {
  constexpr std::string_view kLayers = "layers.";
  const bool in_layer = store_name.starts_with(kLayers);
  std::string prefix;
  if (in_layer) {
    const size_t dot = store_name.find('.', kLayers.size());
    prefix = StrCat("blk.", store_name.substr(kLayers.size(), dot - kLayers.size()), ".");
    store_name.remove_prefix(dot + 1);
  }
  std::vector<std::string> names;
  AddNames(own_names, store_name, prefix, names);
  if (names.empty()) AddNames(in_layer ? std::span<const GgufName>(kLayerNames) : kWholeNames, store_name, prefix, names);
  return names;
}

std::span<const GgufArchitecture> GgufArchitectures() {
  static const std::array kArchitectures = {
      LlamaArchitecture(),        Qwen2MoeArchitecture(),   Qwen3MoeArchitecture(),      OlmoeArchitecture(),
      GptOssArchitecture(),       Glm4MoeArchitecture(),    MiniMaxM2Architecture(),     Ernie45MoeArchitecture(),
      HunyuanMoeArchitecture(),   DeepSeekArchitecture(),   DeepSeek2Architecture(),     GraniteMoeArchitecture(),
      PhiMoeArchitecture(),       MellumArchitecture(),     Qwen3NextArchitecture(),     Qwen35MoeArchitecture(),
      Gemma4Architecture(),       Lfm2MoeArchitecture(),    GraniteHybridArchitecture(), NemotronHMoeArchitecture(),
      AfmoeArchitecture(),        Dots1Architecture(),      ExaoneMoeArchitecture(),     Llama4Architecture(),
      Mistral4Architecture(),     Cohere2MoeArchitecture(), KimiLinearArchitecture(),    HyV3Architecture(),
      Qwen3VlMoeArchitecture(),   LagunaArchitecture(),     BailingMoeArchitecture(),    BailingMoe2Architecture(),
      SmallThinkerArchitecture(),
  };
  return kArchitectures;
}

absl::StatusOr<const GgufArchitecture*> ArchitectureOf(const GgufMetadata& metadata) {
  MOED_ASSIGN_OR_RETURN(const std::string name, metadata.String("general.architecture"));
  for (const GgufArchitecture& architecture : GgufArchitectures()) {
    if (architecture.name == name) return &architecture;
  }
  return InvalidArgument("unknown general.architecture ", ShownGgufValue(name),
                         "; known: ", JoinNames(GgufArchitectures(), [](const GgufArchitecture& known) { return known.name; }));
}

bool PredictsFurther(const GgufModel& model, const ModelSpec& spec, std::string_view tensor_name) {
  const auto split = LayerAndRest(tensor_name);
  if (!split || split->first < spec.layers) return false;
  const auto architecture = model.metadata.String("general.architecture");
  const auto further =
      model.metadata.IntOr(StrCat(architecture.value_or(""), ".nextn_predict_layers"), 0, 0, kMostFurtherGgufLayers);
  return split->first < spec.layers + further.value_or(0);
}

std::string GgufExpertsName(LayerId layer, ExpertPart part) {
  return StrCat("blk.", layer.value(), ".ffn_", kParts[static_cast<size_t>(part)], "_exps.weight");
}

std::string GgufExpertName(LayerId layer, int expert, ExpertPart part) {
  return StrCat(GgufExpertsName(layer, part), "[", expert, "]");
}

std::string CurrentGgufName(std::string_view tensor_name) {
  constexpr std::string_view kSuffix = ".weight";
  const auto split = LayerAndRest(tensor_name);
  if (!split) return std::string(tensor_name);
  const auto [layer, rest] = *split;
  for (const ExpertPart part : {ExpertPart::kGate, ExpertPart::kUp, ExpertPart::kDown}) {
    const std::string prefix = StrCat("ffn_", kParts[static_cast<size_t>(part)], ".");
    if (!rest.starts_with(prefix) || !rest.ends_with(kSuffix) || rest.size() <= prefix.size() + kSuffix.size()) continue;
    const std::string_view number = rest.substr(prefix.size(), rest.size() - prefix.size() - kSuffix.size());
    if (int expert; absl::SimpleAtoi(ToAbsl(number), &expert)) return GgufExpertName(LayerId(layer), expert, part);
  }
  return std::string(tensor_name);
}

std::vector<uint32_t> NeighbourPairsOrder(int heads, int head_dim) {
  const int half = head_dim / 2;
  std::vector<uint32_t> order;
  for (int row = 0; row < heads * head_dim; ++row) {
    const int head = row / head_dim, in_head = row % head_dim;
    order.push_back(static_cast<uint32_t>(head * head_dim + in_head % half * 2 + in_head / half));
  }
  return order;
}

}  // namespace moed
