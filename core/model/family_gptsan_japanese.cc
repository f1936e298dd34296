// GPTSAN-japanese (github.com/tanreinama/GPTSAN): a prefix-LM with one expert a token (Switch Transformers, arXiv 2101.03961) in
// its first layers and extra layers without experts behind them.
#include "core/base/status.h"
#include "core/model/config_reader.h"
#include "core/model/decoder_config.h"
#include "core/model/families.h"

namespace moed {
namespace {

void ReadLayers(ConfigReader& config, ModelSpec& spec) {
  const int with_experts = config.IntOr("num_switch_layers", 10, 1, 2048);
  const int extra = config.IntOr("num_ext_layers", 0, 0, 2048);
  spec.layers = with_experts + extra;
  config.Only("num_layers", {spec.layers});
  spec.moe.assign(static_cast<size_t>(with_experts), true);
  spec.moe.resize(static_cast<size_t>(spec.layers), false);
  spec.experts = config.IntOr("num_experts", 16, 1, 1 << 14);
  spec.top_k = 1;
  spec.expert_ffn = config.IntOr("d_ff", 8192, 1, 1 << 20);
  const int dense = config.IntOr("d_ext", 4096, 1, 1 << 20);
  if (extra > 0) spec.dense_ffn = dense;
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec;
  spec.family = config.String("model_type");
  spec.hidden = config.IntOr("d_model", 1024, 1, 1 << 17);
  spec.heads = spec.kv_heads = config.IntOr("num_heads", 16, 1, 1024);
  spec.head_dim = spec.hidden / spec.heads;
  spec.vocabulary = config.IntOr("vocab_size", 36000, 1, 1 << 24);
  spec.max_positions = config.IntOr("max_position_embeddings", 1280, 1, 1 << 20);
  spec.rms_eps = static_cast<float>(config.NumberOr("layer_norm_epsilon", 1e-5, 1e-12, 0.5));
  spec.unrotated = spec.tied_embeddings = spec.head_bias = true;
  spec.activation = Activation::kRelu;
  ReadLayers(config, spec);
  spec.router_bias = config.BoolOr("router_bias", false);
  spec.prefix = {.separator = config.IntOr("separator_token_id", 35998, 0, spec.vocabulary - 1),
                 .expert_capacity = config.IntOr("expert_capacity", 128, 1, INT32_MAX)};
  config.Only("router_dtype", {"float32"});
  config.Only("tie_word_embeddings", {true});
  config.Only("torchscript", {false});
  config.Only("is_encoder_decoder", {false});
  config.Only("is_decoder", {false});
  config.Only("add_cross_attention", {false});
  config.Only("cross_attention_hidden_size", {});
  config.Only("tie_encoder_decoder", {false});
  config.Only("pruned_heads", {nlohmann::json::object()});
  config.Only("quantization_config", {});
  config.Known({"d_spout", "dropout_rate", "initializer_factor", "router_jitter_noise", "router_ignore_padding_tokens",
                "output_router_logits"});
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::string Block(LayerId layer) { return StrCat("model.blocks.", layer.value(), "."); }

class TrunkList {
 public:
  explicit TrunkList(const ModelSpec& spec) : spec_(spec) {}

  void Model() {
    Matrix("embed", "model.embed_tokens.weight", spec_.vocabulary, spec_.hidden);
    tensors_.push_back({"head_bias", "final_logits_bias", TensorRole::kVector, 1, spec_.vocabulary, true});
    Matrix("positions", "model.position_embeddings.weight", spec_.max_positions, spec_.hidden);
    if (spec_.dense_ffn > 0)
      Matrix("extra_positions", "model.extra_position_embeddings.weight", spec_.max_positions, spec_.hidden);
    Matrix("last_project", "model.last_project.weight", spec_.hidden, spec_.hidden);
    Vector("last_project_bias", "model.last_project.bias", spec_.hidden);
  }
  void Layer(LayerId layer) {
    const std::string store = StrCat("layers.", layer.value(), "."), block = Block(layer), ffn = block + "feed_forward.";
    for (const auto& [name, tensor] : {std::pair("q", "q_proj"), {"k", "k_proj"}, {"v", "v_proj"}, {"o", "out_proj"}}) {
      Matrix(store + name, StrCat(block, "self_attn.self_attn.", tensor, ".weight"), spec_.hidden, spec_.hidden);
    }
    Norm(store + "attn_post_norm", block + "self_attn.norm.");
    Norm(store + "ffn_post_norm", ffn + "norm.");
    if (!spec_.moe[static_cast<size_t>(layer.value())]) return Dense(store + "dense.", ffn + "mlp.");
    const std::string router = ffn + "mlp.router.classifier.";
    tensors_.push_back({store + "router", router + "weight", TensorRole::kRouter, spec_.experts, spec_.hidden});
    if (spec_.router_bias) Vector(store + "router_bias", router + "bias", spec_.experts);
    Matrix(store + "bypass", ffn + "soft_bypass_mlp.weight", spec_.hidden, spec_.hidden);
  }
  std::vector<TrunkTensor> Take() { return std::move(tensors_); }

 private:
  void Matrix(std::string store, std::string checkpoint, int rows, int cols) {
    tensors_.push_back({std::move(store), std::move(checkpoint), TensorRole::kMatrix, rows, cols});
  }
  void Vector(std::string store, std::string checkpoint, int size) {
    tensors_.push_back({std::move(store), std::move(checkpoint), TensorRole::kVector, 1, size});
  }
  void Norm(const std::string& store, const std::string& checkpoint) {
    Vector(store, checkpoint + "weight", spec_.hidden);
    Vector(store + "_bias", checkpoint + "bias", spec_.hidden);
  }
  void Dense(const std::string& store, const std::string& checkpoint) {
    Matrix(store + "up", checkpoint + "wi.weight", spec_.dense_ffn, spec_.hidden);
    Vector(store + "up_bias", checkpoint + "wi.bias", spec_.dense_ffn);
    Matrix(store + "down", checkpoint + "wo.weight", spec_.hidden, spec_.dense_ffn);
    Vector(store + "down_bias", checkpoint + "wo.bias", spec_.hidden);
  }

  const ModelSpec& spec_;
  std::vector<TrunkTensor> tensors_;
};

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  TrunkList list(spec);
  list.Model();
  for (int layer = 0; layer < spec.layers; ++layer) list.Layer(LayerId(layer));
  return list.Take();
}

std::string ExpertTensor(LayerId layer, int expert, ExpertPart part) {
  return StrCat(Block(layer), "feed_forward.mlp.experts.expert_", expert, part == ExpertPart::kDown ? ".wo" : ".wi", ".weight");
}

// What turns a vector of the caller's into keys and values of a position before the text. Texts go without.
bool IsSpout(const ModelSpec&, std::string_view name) { return name.starts_with("model.spout."); }

}  // namespace

Family GptsanJapaneseFamily() { return {"gptsan-japanese", ReadSpec, ExpertTensor, TrunkTensors, /*parts=*/nullptr, IsSpout}; }

}  // namespace moed
