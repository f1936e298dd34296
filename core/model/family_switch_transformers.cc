// Switch Transformers (arXiv 2101.03961): T5's encoder-decoder with one expert a token in some layers. Layers are numbered
// through, the encoder's first. Experts and feed-forward blocks have two matrices, wi and wo, with a ReLU between them.
#include <algorithm>
#include <cmath>

#include "core/base/status.h"
#include "core/model/config_reader.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"
#include "core/model/matrix_parts.h"

namespace moed {
namespace {

// Heads know distances alone, so the model has no last position.
constexpr int kPositions = 1 << 14;

// Layers of a half that have experts, as the reference derives them from their number.
void ReadSparsity(ConfigReader& config, std::string_view sparse_key, std::string_view step_key, int layers, ModelSpec& spec) {
  const int sparse = config.IntOr(sparse_key, 3, 0, layers);
  const int step = config.IntOr(step_key, sparse > 0 ? layers / sparse : layers, 0, 4096);
  for (int layer = 0; layer < layers; ++layer) spec.moe.push_back(step == 1 || (step > 1 && layer % step == 1));
}

// generation_config.json's where config.json does not say it.
int ReadStart(ConfigReader& config, std::string_view generation_config, int vocabulary) {
  constexpr std::string_view kStart = "decoder_start_token_id";
  if (!config.Has(kStart) && !generation_config.empty()) {
    absl::StatusOr<ConfigReader> generation = ConfigReader::Parse("generation_config.json", generation_config);
    if (generation.ok() && generation->Has(kStart)) {
      const int start = generation->Int(kStart, 0, vocabulary - 1);
      config.Known({kStart});
      config.Fail(generation->status());
      return start;
    }
  }
  return config.Int(kStart, 0, vocabulary - 1);
}

void ReadEncoder(ConfigReader& config, std::string_view generation_config, ModelSpec& spec) {
  EncoderShape encoder;
  encoder.layers = config.Int("num_layers", 1, 2048);
  const int decoder_layers = config.IntOr("num_decoder_layers", encoder.layers, 1, 2048);
  spec.layers = encoder.layers + decoder_layers;
  ReadSparsity(config, "num_sparse_encoder_layers", "encoder_sparse_step", encoder.layers, spec);
  ReadSparsity(config, "num_sparse_decoder_layers", "decoder_sparse_step", decoder_layers, spec);
  encoder.position_buckets = config.IntOr("relative_attention_num_buckets", 32, 4, 1 << 12);
  encoder.most_distance = config.IntOr("relative_attention_max_distance", 128, encoder.position_buckets / 2 + 1, 1 << 14);
  encoder.expert_capacity = config.IntOr("expert_capacity", 64, 0, INT32_MAX);
  encoder.start = ReadStart(config, generation_config, spec.vocabulary);
  spec.encoder = encoder;
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec;
  spec.family = config.String("model_type");
  spec.hidden = config.Int("d_model", 1, 1 << 17);
  spec.heads = spec.kv_heads = config.Int("num_heads", 1, 1024);
  spec.head_dim = config.Int("d_kv", 2, 1024);
  spec.vocabulary = config.Int("vocab_size", 1, 1 << 24);
  spec.max_positions = kPositions;
  spec.rms_eps = static_cast<float>(config.NumberOr("layer_norm_epsilon", 1e-6, 1e-12, 0.5));
  spec.unrotated = true;
  spec.attention_scale = 1;
  spec.tied_embeddings = config.BoolOr("tie_word_embeddings", true);
  if (spec.tied_embeddings) spec.logits_scale = 1 / std::sqrt(static_cast<double>(spec.hidden));
  ReadEncoder(config, generation_config, spec);
  spec.experts = config.Int("num_experts", 1, 1 << 14);
  spec.top_k = 1;
  spec.expert_ffn = config.Int("d_ff", 1, 1 << 20);
  if (std::ranges::count(spec.moe, false) > 0) spec.dense_ffn = spec.expert_ffn;
  spec.activation = Activation::kRelu;
  spec.router_bias = config.BoolOr("router_bias", false);
  config.Only("dense_act_fn", {"relu"});
  config.Only("feed_forward_proj", {"relu"});
  config.Only("is_gated_act", {false});
  config.Only("router_dtype", {"float32"});
  config.Only("router_type", {"tokens_masked"});
  config.Only("batch_prioritized_routing", {false});
  config.Only("is_encoder_decoder", {true});
  config.Only("is_decoder", {false});
  config.Only("add_cross_attention", {false});
  config.Only("cross_attention_hidden_size", {});
  config.Only("tie_encoder_decoder", {false});
  config.Only("pruned_heads", {nlohmann::json::object()});
  config.Only("quantization_config", {});
  config.Known({"dropout_rate", "classifier_dropout", "initializer_factor", "router_jitter_noise", "router_ignore_padding_tokens",
                "router_z_loss_coef", "router_aux_loss_coef", "add_router_probs", "n_positions", "output_past",
                "num_selected_experts"});
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

// "encoder.block.3.", "decoder.block.0.".
std::string Block(const ModelSpec& spec, LayerId layer) {
  const bool encoder = spec.IsEncoder(layer);
  return StrCat(encoder ? "encoder" : "decoder", ".block.", layer.value() - (encoder ? 0 : spec.encoder->layers), ".");
}

std::string FfnLayer(const ModelSpec& spec, LayerId layer) {
  return StrCat(Block(spec, layer), "layer.", spec.IsEncoder(layer) ? 1 : 2, ".");
}

const char* ProjectionName(ExpertPart part) { return part == ExpertPart::kDown ? ".wo.weight" : ".wi.weight"; }

class TrunkList {
 public:
  explicit TrunkList(const ModelSpec& spec) : spec_(spec) {}

  void Model() {
    Add("embed", "shared.weight", TensorRole::kMatrix, spec_.vocabulary, spec_.hidden);
    if (!spec_.tied_embeddings) Add("head", "lm_head.weight", TensorRole::kMatrix, spec_.vocabulary, spec_.hidden);
    Norm("encoder_norm", "encoder.final_layer_norm.weight");
    Norm("final_norm", "decoder.final_layer_norm.weight");
    Bias(kEncoderBias, "encoder");
    Bias(kDecoderBias, "decoder");
  }
  void Layer(LayerId layer) {
    const std::string store = StrCat("layers.", layer.value(), "."), block = Block(spec_, layer);
    Norm(store + "attn_norm", block + "layer.0.layer_norm.weight");
    Projections(store, block + "layer.0.SelfAttention.");
    if (!spec_.IsEncoder(layer)) {
      Norm(store + "cross.norm", block + "layer.1.layer_norm.weight");
      Projections(store + "cross.", block + "layer.1.EncDecAttention.");
    }
    const std::string ffn = FfnLayer(spec_, layer);
    Norm(store + "ffn_norm", ffn + "layer_norm.weight");
    if (spec_.moe[layer.value()]) {
      const std::string router = ffn + "mlp.router.classifier.";
      Add(store + "router", router + "weight", TensorRole::kRouter, spec_.experts, spec_.hidden);
      if (spec_.router_bias) Add(store + "router_bias", router + "bias", TensorRole::kVector, 1, spec_.experts);
    } else {
      Add(store + "dense.up", ffn + "mlp.wi.weight", TensorRole::kMatrix, spec_.dense_ffn, spec_.hidden);
      Add(store + "dense.down", ffn + "mlp.wo.weight", TensorRole::kMatrix, spec_.hidden, spec_.dense_ffn);
    }
  }
  std::vector<TrunkTensor> Take() { return std::move(tensors_); }

 private:
  void Add(std::string store, std::string checkpoint, TensorRole role, int rows, int cols) {
    tensors_.push_back({std::move(store), std::move(checkpoint), role, rows, cols});
  }
  void Norm(std::string store, std::string checkpoint) {
    Add(std::move(store), std::move(checkpoint), TensorRole::kVector, 1, spec_.hidden);
  }
  void Bias(std::string_view store, std::string_view half) {
    Add(std::string(store), StrCat(half, ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"), TensorRole::kVector,
        spec_.encoder->position_buckets, spec_.heads);
  }
  void Projections(const std::string& store, const std::string& checkpoint) {
    const int width = spec_.heads * spec_.head_dim;
    for (const char* name : {"q", "k", "v"}) {
      Add(store + name, StrCat(checkpoint, name, ".weight"), TensorRole::kMatrix, width, spec_.hidden);
    }
    Add(store + "o", checkpoint + "o.weight", TensorRole::kMatrix, spec_.hidden, width);
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

// A name by the layer's number; the checkpoint counts the layers of each half by themselves, which Parts tells.
std::string ExpertTensor(LayerId layer, int expert, ExpertPart part) {
  return StrCat("layers.", layer.value(), ".experts.", expert, ProjectionName(part));
}

std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (const LayerId layer : spec.MoeLayers()) {
    const std::string experts = FfnLayer(spec, layer) + "mlp.experts.expert_";
    for (int expert = 0; expert < spec.experts; ++expert) {
      for (const ExpertPart part : {ExpertPart::kUp, ExpertPart::kDown}) {
        const int rows = part == ExpertPart::kUp ? spec.expert_ffn : spec.hidden;
        const int cols = part == ExpertPart::kUp ? spec.hidden : spec.expert_ffn;
        const std::string whole = StrCat(experts, expert, ProjectionName(part));
        parts.push_back(PartOf(ExpertTensor(layer, expert, part), rows, cols, {whole, rows}));
      }
    }
  }
  return parts;
}

}  // namespace

Family SwitchTransformersFamily() { return {"switch_transformers", ReadSpec, ExpertTensor, TrunkTensors, Parts}; }

}  // namespace moed
