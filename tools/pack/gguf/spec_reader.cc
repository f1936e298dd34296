#include "tools/pack/gguf/spec_reader.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "core/base/status.h"
#include "core/model/spec_check.h"
#include "tools/pack/gguf/architecture.h"

namespace moed {
namespace {

// Of the tokenizer, of how the weights came about, or of places in pictures: none changes the logits of a text.
constexpr std::string_view kHarmless[] = {"rope.scaling.finetuned", "tensor_data_layout", "vocab_size",
                                          "rope.dimension_sections"};

// What there is none of up to these numbers, which converters write all the same.
constexpr std::pair<std::string_view, int64_t> kNoneUpTo[] = {
    {"expert_group_count", 1},
    {"expert_group_used_count", 1},
    {"expert_shared_count", 0},
    {"expert_shared_feed_forward_length", 0},
};

// expert_gating_func; absent or none: what the architecture has.
constexpr int kNoGating = 0, kSoftmaxGating = 1, kSigmoidGating = 2;

// Tokens by which models end their turn, whatever the metadata's own keys say of them.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>",    "<|im_end|>", "<|end|>",       "<|return|>",      "<|call|>",
    "<end_of_turn>", "<turn|>",    "<|endoftext|>", "<|eom_id|>",      "<|end_of_text|>",
    "<EOT>",         "_<EOT>",     "[EOT]",         "[EOS]",           "<｜end▁of▁sentence｜>",
    "<|flush|>",     "<|calls|>",  "<eos>",         "<|tool_response>"};

}  // namespace

GgufSpecReader::GgufSpecReader(const GgufModel& model) : model_(model) {
  const auto architecture = model.metadata.String("general.architecture");
  if (!architecture.ok()) Fail(architecture.status());
  prefix_ = architecture.value_or("") + ".";
}

void GgufSpecReader::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

std::string GgufSpecReader::Full(std::string_view key) { return *read_.insert(StrCat(prefix_, key)).first; }

bool GgufSpecReader::Has(std::string_view key) const { return model_.metadata.Has(StrCat(prefix_, key)); }

template <class T>
T GgufSpecReader::Value(absl::StatusOr<T> value, T otherwise) {
  if (value.ok()) return *std::move(value);
  Fail(value.status());
  return otherwise;
}

int GgufSpecReader::Int(std::string_view key, int64_t low, int64_t high) {
  const std::string full = Full(key);
  const GgufValue* value = model_.metadata.Find(full);
  const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
  if (list == nullptr) return static_cast<int>(Value(model_.metadata.Int(full, low, high), low));
  const bool same = !list->empty() && std::count(list->begin(), list->end(), list->front()) == static_cast<int64_t>(list->size());
  if (same && list->front() >= low && list->front() <= high) return static_cast<int>(list->front());
  Fail(InvalidArgument("key ", full, " is an array, allowed: one number from ", low, " to ", high, ", the same for all layers"));
  return static_cast<int>(low);
}

int GgufSpecReader::IntOr(std::string_view key, int otherwise, int64_t low, int64_t high) {
  if (Has(key)) return Int(key, low, high);
  Full(key);
  return otherwise;
}

std::vector<int> GgufSpecReader::Ints(std::string_view key, size_t layers, int64_t low, int64_t high) {
  const std::string full = Full(key);
  const GgufValue* value = model_.metadata.Find(full);
  const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
  if (list == nullptr) return std::vector<int>(layers, Int(key, low, high));
  const auto in_range = [&](int64_t number) { return number >= low && number <= high; };
  // Layers that predict further tokens come after the others.
  if (list->size() >= layers && std::ranges::all_of(*list, in_range)) {
    return std::vector<int>(list->begin(), list->begin() + static_cast<std::ptrdiff_t>(layers));
  }
  Fail(InvalidArgument("key ", full, " is an array of ", list->size(), " numbers, allowed: ", layers, " or more from ", low,
                       " to ", high));
  return std::vector<int>(layers, static_cast<int>(low));
}

double GgufSpecReader::Number(std::string_view key, double low, double high) {
  return Value(model_.metadata.Number(Full(key), low, high), low);
}

double GgufSpecReader::NumberOr(std::string_view key, double otherwise, double low, double high) {
  if (Has(key)) return Number(key, low, high);
  Full(key);
  return otherwise;
}

bool GgufSpecReader::BoolOr(std::string_view key, bool otherwise) {
  return Value(model_.metadata.BoolOr(Full(key), otherwise), otherwise);
}

std::string GgufSpecReader::StringOr(std::string_view key, std::string_view otherwise) {
  const std::string full = Full(key);
  return Has(key) ? Value(model_.metadata.String(full), std::string(otherwise)) : std::string(otherwise);
}

std::vector<bool> GgufSpecReader::LayersOr(std::string_view key, int layers, int period) {
  const std::string full = Full(key);
  std::vector<bool> flags(layers);
  const GgufValue* value = model_.metadata.Find(full);
  const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
  if (list == nullptr) {
    const int n = IntOr(key, period, 1, 4096);
    for (int layer = 0; layer < layers; ++layer) flags[layer] = layer % n != n - 1;
  } else if (list->size() < static_cast<size_t>(layers)) {
    Fail(InvalidArgument("key ", full, " has ", list->size(), " entries for ", layers, " layers"));
  } else {
    for (int layer = 0; layer < layers; ++layer) flags[layer] = (*list)[layer] != 0;
  }
  return flags;
}

void GgufSpecReader::Only(std::string_view key, std::initializer_list<double> allowed) {
  const std::string full = Full(key);
  const GgufValue* value = model_.metadata.Find(full);
  if (value == nullptr) return;
  const bool* flag = std::get_if<bool>(value);
  const auto number = flag != nullptr ? absl::StatusOr<double>(*flag ? 1 : 0) : model_.metadata.Number(full, -1e300, 1e300);
  if (number.ok() && std::find(allowed.begin(), allowed.end(), *number) != allowed.end()) return;
  Fail(InvalidArgument("key ", full, " is ", ShownGgufValue(*value),
                       ", which is not supported; allowed: ", JoinNames(allowed, [](double item) { return item; })));
}

void GgufSpecReader::OnlyText(std::string_view key, std::initializer_list<std::string_view> allowed) {
  const std::string full = Full(key);
  const GgufValue* value = model_.metadata.Find(full);
  if (value == nullptr) return;
  const auto* text = std::get_if<std::string>(value);
  if (text != nullptr && std::find(allowed.begin(), allowed.end(), *text) != allowed.end()) return;
  Fail(InvalidArgument("key ", full, " is ", ShownGgufValue(*value),
                       ", which is not supported; allowed: ", JoinNames(allowed, [](std::string_view item) { return item; })));
}

absl::StatusOr<std::vector<float>> GgufSpecReader::Floats(std::string_view name, size_t count) const {
  const GgufTensor* tensor = Tensor(name);
  if (tensor == nullptr || tensor->bytes != count * sizeof(float) || tensor->type->name != "F32") {
    return InvalidArgument("tensor \"", name, "\" is missing or no F32 vector of ", count, " numbers");
  }
  std::vector<float> numbers(count);
  MOED_RETURN_IF_ERROR(tensor->file->ReadAt(tensor->offset, std::as_writable_bytes(std::span(numbers))));
  return numbers;
}

void GgufSpecReader::ReadEndTokens(ModelSpec& spec) {
  const GgufMetadata& metadata = model_.metadata;
  const auto read = [&](std::string_view key, std::vector<TokenId>& tokens) {
    if (!metadata.Has(key)) return;
    const auto id = Value(metadata.Int(key, 0, spec.vocabulary - 1), int64_t{0});
    tokens.emplace_back(static_cast<int32_t>(id));
  };
  read("tokenizer.ggml.bos_token_id", spec.bos);
  for (const std::string_view key : {"eos", "eot", "eom"}) read(StrCat("tokenizer.ggml.", key, "_token_id"), spec.eos);
  const auto texts = metadata.Strings("tokenizer.ggml.tokens");
  if (!texts.ok()) return;  // the tokenizer's own reader says so
  const auto find = [&](std::string_view text) { return std::find((*texts)->begin(), (*texts)->end(), text); };
  const auto has = [&](std::string_view text) { return find(text) != (*texts)->end(); };
  // gpt-oss's channels and Solar Open's messages end with <|end|>, their turns do not.
  const bool channels = (has("<|return|>") && has("<|call|>")) || (has("<|flush|>") && has("<|calls|>"));
  for (const std::string_view text : kEndTexts) {
    const auto at = find(text);
    if (at == (*texts)->end() || (channels && text == "<|end|>")) continue;
    if (const auto id = at - (*texts)->begin(); id < spec.vocabulary) spec.eos.emplace_back(static_cast<int32_t>(id));
  }
  std::sort(spec.eos.begin(), spec.eos.end());
  spec.eos.erase(std::unique(spec.eos.begin(), spec.eos.end()), spec.eos.end());
}

absl::StatusOr<ModelSpec> GgufSpecReader::Finish(ModelSpec spec) {
  ReadEndTokens(spec);
  MOED_RETURN_IF_ERROR(status_);
  for (const auto& [key, value] : model_.metadata.values()) {
    if (!key.starts_with(prefix_) || read_.contains(key)) continue;
    const std::string_view name = std::string_view(key).substr(prefix_.size());
    if (std::ranges::find(kHarmless, name) != std::end(kHarmless)) continue;
    const auto* none = std::ranges::find(kNoneUpTo, name, &std::pair<std::string_view, int64_t>::first);
    if (none != std::end(kNoneUpTo) && model_.metadata.Int(key, 0, none->second).ok()) continue;
    return InvalidArgument("unknown key ", key, " (", ShownGgufValue(value),
                           ") might change what the model computes; keys that are understood: ",
                           JoinNames(read_, [](const std::string& name) { return name; }));
  }
  if (const absl::Status checked = CheckSpec(spec); !checked.ok()) return Annotate(checked, "metadata");
  return spec;
}

namespace {

constexpr std::string_view kKvHeads = "attention.head_count_kv";

// 0 of the recurrent layers, of the others the same number.
void ReadRecurrentLayers(GgufSpecReader& reader, ModelSpec& spec) {
  const std::vector<int> heads = reader.Ints(kKvHeads, static_cast<size_t>(spec.layers), 0, 1024);
  spec.kv_heads = *std::ranges::max_element(heads);
  for (const int count : heads) {
    spec.recurrent.push_back(count == 0);
    if (count == 0 || count == spec.kv_heads) continue;
    reader.Fail(InvalidArgument(kKvHeads, " has both ", count, " and ", spec.kv_heads, ", allowed: 0 and one other number"));
  }
}

void ReadHeads(GgufSpecReader& reader, const GgufOwnKeys& own, ModelSpec& spec) {
  if (own.recurrent) {
    ReadRecurrentLayers(reader, spec);
  } else {
    spec.kv_heads = reader.IntOr(kKvHeads, spec.heads, 1, 1024);
  }
  if (!reader.Has("attention.key_length") && spec.hidden % spec.heads != 0) {
    reader.Fail(InvalidArgument("embedding_length = ", spec.hidden, " is no multiple of attention.head_count = ", spec.heads,
                                " and there is no attention.key_length"));
  }
  spec.head_dim = reader.IntOr("attention.key_length", spec.hidden / spec.heads, 2, 1024);
  reader.Only("attention.value_length", {static_cast<double>(spec.head_dim)});
  spec.unrotated = own.unrotated;
  if (own.unrotated) {
    reader.IntOr("rope.dimension_count", 0, 0, INT32_MAX);
    return;
  }
  if (!own.partial_rotary) {
    reader.Only("rope.dimension_count", {static_cast<double>(spec.head_dim)});
    return;
  }
  const int rotated = reader.IntOr("rope.dimension_count", spec.head_dim, 2, spec.head_dim);
  if (rotated != spec.head_dim) spec.rotary_dims = rotated;
}

// As one head of keys and values, which is what the cache keeps; the heads after that have keys of their own. Files of before
// April 2025 say the heads alone.
void ReadLatentHeads(GgufSpecReader& reader, ModelSpec& spec) {
  const bool heads_alone = !reader.Has("attention.key_length_mla");
  spec.rotary_dims = reader.Int("rope.dimension_count", 2, 1024);
  spec.head_dim = reader.Int(heads_alone ? "attention.key_length" : "attention.key_length_mla", 4, 1024);
  spec.kv_heads = 1;
  spec.latent = {.q_rank = reader.IntOr("attention.q_lora_rank", 0, 0, 1 << 17),
                 .kv_rank = reader.Int("attention.kv_lora_rank", 1, 1024),
                 .value_dim = reader.Int(heads_alone ? "attention.value_length" : "attention.value_length_mla", 1, 1024)};
  if (heads_alone) {
    reader.Only("attention.head_count_kv", {static_cast<double>(spec.heads)});
    return;
  }
  reader.Only("attention.head_count_kv", {1});
  reader.Only("attention.key_length", {static_cast<double>(spec.latent->kv_rank + spec.rotary_dims)});
  reader.Only("attention.value_length", {static_cast<double>(spec.latent->kv_rank)});
}

void ReadVocabulary(GgufSpecReader& reader, ModelSpec& spec) {
  spec.tied_embeddings = reader.Tensor("output.weight") == nullptr;
  const GgufTensor* embed = reader.Tensor("token_embd.weight");
  if (embed == nullptr || embed->shape.size() != 2 || embed->shape[0] > 1 << 24) {
    reader.Fail(InvalidArgument(
        "tensor \"token_embd.weight\", which says the size of the vocabulary, is missing or no matrix of at most ", 1 << 24,
        " rows"));
  } else {
    spec.vocabulary = static_cast<int>(embed->shape[0]);
  }
}

void RefuseWhatNobodyHas(GgufSpecReader& reader, const GgufOwnKeys& own) {
  reader.Only("attention.causal", {1});
  reader.Only("attention.clamp_kqv", {0});
  if (!own.window) reader.Only("attention.sliding_window", {0});
  reader.Only("rope.scale_linear", {0, 1});
  if (!own.gating) reader.Only("expert_gating_func", {kNoGating, kSoftmaxGating});
  if (!own.weights_scale) reader.Only("expert_weights_scale", {0, 1});
}

// YaRN, whose borders llama.cpp truncates. The converter says of an attention factor what config.json does.
void ReadRopeScaling(GgufSpecReader& reader, const GgufOwnKeys& own, ModelSpec& spec) {
  if (own.rope_scaling) return;
  const bool may_scale = !own.latent && !own.heads && !own.unrotated && !own.window;
  if (may_scale) spec.yarn = ReadGgufYarn(reader, true);
  if (spec.yarn) {
    spec.yarn->attention_factor = reader.NumberOr("rope.scaling.yarn_attn_factor", spec.yarn->attention_factor, 1e-3, 1e3);
    return;
  }
  reader.OnlyText("rope.scaling.type", {"none"});
  reader.Only("rope.scaling.factor", {0, 1});                             // without a type it means "linear"
  reader.IntOr("rope.scaling.original_context_length", 0, 0, INT32_MAX);  // counts with a type only
}

}  // namespace

ModelSpec ReadGgufDecoder(GgufSpecReader& reader, std::string_view family, const GgufOwnKeys& own) {
  ModelSpec spec;
  spec.family = family;
  const int further = reader.IntOr("nextn_predict_layers", 0, 0, kMostFurtherGgufLayers);
  spec.layers = reader.Int("block_count", 1 + further, 4096) - further;
  spec.hidden = reader.Int("embedding_length", 1, 1 << 17);
  if (!own.query_heads) spec.heads = reader.Int("attention.head_count", 1, 1024);
  if (!own.heads) own.latent ? ReadLatentHeads(reader, spec) : ReadHeads(reader, own, spec);
  spec.max_positions = reader.Int("context_length", 1, 1 << 24);
  spec.rms_eps = static_cast<float>(reader.Number(own.norm_eps, 1e-12, 0.5));
  spec.rope_theta = reader.NumberOr("rope.freq_base", 10000.0, 1, 1e15);
  spec.experts = reader.Int("expert_count", 1, 1 << 14);
  spec.top_k = reader.Int("expert_used_count", 1, 1024);
  ReadVocabulary(reader, spec);
  for (int layer = 0; layer < spec.layers; ++layer) {
    spec.moe.push_back(reader.Tensor(StrCat("blk.", layer, ".ffn_gate_inp.weight")) != nullptr);
  }
  if (own.weights_scale) {
    const double scale = reader.NumberOr("expert_weights_scale", 1, 0, 1e3);
    spec.router_scale = scale == 0 ? 1 : scale;
  }
  RefuseWhatNobodyHas(reader, own);
  ReadRopeScaling(reader, own, spec);
  return spec;
}

void ReadOneFfnWidth(GgufSpecReader& reader, ModelSpec& spec) {
  const int width = reader.Int("feed_forward_length", 1, 1 << 20);
  spec.expert_ffn = width;
  reader.Only("expert_feed_forward_length", {static_cast<double>(width)});
}

void ReadFfnWidths(GgufSpecReader& reader, ModelSpec& spec) {
  spec.expert_ffn = reader.Int("expert_feed_forward_length", 1, 1 << 18);
  const int dense_ffn = reader.IntOr("feed_forward_length", 0, 0, 1 << 20);
  if (std::ranges::count(spec.moe, false) > 0) spec.dense_ffn = dense_ffn;
  for (const std::string_view said_by_tensors : {"leading_dense_block_count", "interleave_moe_layer_step"}) {
    reader.IntOr(said_by_tensors, 0, 0, 4096);
  }
}

std::optional<YarnScaling> ReadGgufYarn(GgufSpecReader& reader, bool truncate) {
  const std::string type = reader.StringOr("rope.scaling.type", "none");
  reader.OnlyText("rope.scaling.type", {"none", "yarn"});
  if (type != "yarn") return std::nullopt;
  YarnScaling yarn;
  yarn.factor = reader.Number("rope.scaling.factor", 1, 1e6);
  yarn.original_positions = reader.Int("rope.scaling.original_context_length", 1, 1 << 24);
  yarn.beta_fast = reader.NumberOr("rope.scaling.yarn_beta_fast", yarn.beta_fast, 1e-6, 1e6);
  yarn.beta_slow = reader.NumberOr("rope.scaling.yarn_beta_slow", yarn.beta_slow, 1e-6, 1e6);
  yarn.attention_factor = yarn.factor <= 1 ? 1.0 : 0.1 * std::log(yarn.factor) + 1.0;
  yarn.truncate = truncate;
  reader.Only("rope.scaling.yarn_ext_factor", {1});
  return yarn;
}

void ReadGgufRopeFactors(GgufSpecReader& reader, ModelSpec& spec) {
  if (reader.Tensor(kGgufRopeFactors) == nullptr) return;
  const absl::StatusOr<std::vector<float>> factors = reader.Floats(kGgufRopeFactors, static_cast<size_t>(spec.RotaryDims() / 2));
  if (!factors.ok()) return reader.Fail(factors.status());
  spec.divided = {.divisors = {factors->begin(), factors->end()}};
}

void ReadGroups(GgufSpecReader& reader, ModelSpec& spec) {
  spec.router_groups = std::max(1, reader.IntOr("expert_group_count", 1, 0, kMostGroups));
  spec.router_kept_groups = std::max(1, reader.IntOr("expert_group_used_count", 1, 0, kMostGroups));
}

void ReadCorrectedSigmoid(GgufSpecReader& reader, ModelSpec& spec) {
  reader.Only("expert_gating_func", {kNoGating, kSigmoidGating});
  spec.router_scoring = RouterScoring::kSigmoid;
  spec.router_correction = true;
}

void ReadGroupedSigmoid(GgufSpecReader& reader, ModelSpec& spec) {
  ReadCorrectedSigmoid(reader, spec);
  ReadGroups(reader, spec);
  spec.router_group_rank = spec.router_groups > 1 ? GroupRank::kTwoLargestKeys : GroupRank::kLargestKey;
  spec.router_epsilon = 1e-20;
}

}  // namespace moed
