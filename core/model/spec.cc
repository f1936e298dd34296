#include "core/model/spec.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/model/family.h"
#include "core/model/spec_check.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

using Json = nlohmann::json;  // objects sorted by key: one text for one spec

template <class Value>
struct Named {
  Value value;
  const char* name;
};
constexpr Named<ModelSpec::QkNorm> kQkNorms[] = {{ModelSpec::QkNorm::kNone, "none"},
                                                 {ModelSpec::QkNorm::kPerHead, "per_head"},
                                                 {ModelSpec::QkNorm::kWhole, "whole"},
                                                 {ModelSpec::QkNorm::kUnit, "unit"}};
// The first is not written.
constexpr Named<ModelSpec::Norms> kNorms[] = {{ModelSpec::Norms::kBefore, "before"},
                                              {ModelSpec::Norms::kAround, "around"},
                                              {ModelSpec::Norms::kBehind, "behind"},
                                              {ModelSpec::Norms::kBoth, "both"}};
constexpr Named<Activation> kActivations[] = {{Activation::kSilu, "silu"},
                                              {Activation::kGelu, "gelu"},
                                              {Activation::kSquaredRelu, "squared_relu"},
                                              {Activation::kRelu, "relu"},
                                              {Activation::kGatedRelu, "gated_relu"}};
constexpr Named<ModelSpec::GateKind> kGateKinds[] = {{ModelSpec::GateKind::kSigmoid, "sigmoid"},
                                                     {ModelSpec::GateKind::kSoftplus, "softplus"},
                                                     {ModelSpec::GateKind::kHeadSoftplus, "head_softplus"}};
constexpr Named<ModelSpec::RouterInput> kRouterInputs[] = {{ModelSpec::RouterInput::kFfn, "ffn"},
                                                           {ModelSpec::RouterInput::kLayer, "layer"}};
constexpr Named<RouterScoring> kScorings[] = {{RouterScoring::kSoftmax, "softmax"},
                                              {RouterScoring::kSigmoid, "sigmoid"},
                                              {RouterScoring::kSparsemixer, "sparsemixer"},
                                              {RouterScoring::kSigmoidOfChosen, "sigmoid_of_chosen"}};
constexpr Named<GroupRank> kGroupRanks[] = {{GroupRank::kLargestKey, "largest"}, {GroupRank::kTwoLargestKeys, "two_largest"}};

// An unknown name leaves `value` as it is: the text is then no canonical one.
template <class Rows, class Value>
void FromName(const Rows& rows, std::string_view name, Value& value) {
  for (const auto& row : rows) {
    if (name == row.name) value = row.value;
  }
}
template <class Rows, class Value>
std::string NameOf(const Rows& rows, Value value) {
  for (const auto& row : rows) {
    if (value == row.value) return row.name;
  }
  return "";
}

std::vector<int32_t> Values(const std::vector<TokenId>& tokens) {
  std::vector<int32_t> values;
  for (TokenId token : tokens) values.push_back(token.value());
  return values;
}

Json Encode(const YarnScaling& yarn) {
  return {{"factor", yarn.factor},
          {"beta_fast", yarn.beta_fast},
          {"beta_slow", yarn.beta_slow},
          {"attention_factor", yarn.attention_factor},
          {"original_positions", yarn.original_positions},
          {"truncate", yarn.truncate}};
}

Json Encode(const LatentAttention& latent) {
  return {{"q_rank", latent.q_rank}, {"kv_rank", latent.kv_rank}, {"value_dim", latent.value_dim}, {"norm_eps", latent.norm_eps}};
}

// What is no whole number of the range becomes -1, which CheckSpec refuses.
int IntOf(const Json& json, int64_t low, int64_t high) {
  return static_cast<int>(WholeNumber("a number", json, low, high).value_or(-1));
}

YarnScaling DecodeYarn(const Json& yarn) {
  return {.factor = yarn.at("factor").get<double>(),
          .beta_fast = yarn.at("beta_fast").get<double>(),
          .beta_slow = yarn.at("beta_slow").get<double>(),
          .attention_factor = yarn.at("attention_factor").get<double>(),
          .original_positions = IntOf(yarn.at("original_positions"), 1, INT32_MAX),
          .truncate = yarn.at("truncate").get<bool>()};
}

Json Encode(const FrequencyDivisors& divided) {
  return {{"divisors", divided.divisors}, {"attention_factor", divided.attention_factor}};
}

FrequencyDivisors DecodeDivisors(const Json& divided) {
  return {.divisors = divided.at("divisors").get<std::vector<double>>(),
          .attention_factor = divided.at("attention_factor").get<double>()};
}

Json Encode(const Rotation& rotation) {
  Json json = {{"theta", rotation.theta}};
  if (rotation.yarn) json["yarn"] = Encode(*rotation.yarn);
  if (rotation.divided) json["divided"] = Encode(*rotation.divided);
  if (rotation.pairs != 0) json["pairs"] = rotation.pairs;
  if (rotation.rotary_dims != 0) json["rotary_dims"] = rotation.rotary_dims;
  return json;
}

Json Encode(const HeadShape& heads) {
  Json json = {{"kv_heads", heads.kv_heads}, {"head_dim", heads.head_dim}};
  if (heads.values_are_keys) json["values_are_keys"] = true;
  if (heads.heads != 0) json["heads"] = heads.heads;
  return json;
}

Json Encode(const QueryTemperature& temperature) {
  Json json = {{"scale", temperature.scale}, {"positions", temperature.positions}, {"shift", temperature.shift}};
  if (temperature.of_unrotated) json["of_unrotated"] = true;
  return json;
}

QueryTemperature DecodeTemperature(const Json& temperature) {
  return {.scale = temperature.at("scale").get<double>(),
          .positions = IntOf(temperature.at("positions"), 1, INT32_MAX),
          .shift = IntOf(temperature.at("shift"), 0, 1),
          .of_unrotated = temperature.value("of_unrotated", false)};
}

Json Encode(const DeltaNetShape& shape) {
  Json json = {{"key_heads", shape.key_heads},
               {"value_heads", shape.value_heads},
               {"key_dim", shape.key_dim},
               {"value_dim", shape.value_dim},
               {"taps", shape.taps}};
  if (shape.key_heads_in_turn) json["key_heads_in_turn"] = true;
  if (shape.gate_rank > 0) json["gate_rank"] = shape.gate_rank;
  return json;
}

Json Encode(const Mamba2Shape& shape) {
  return {{"heads", shape.heads},         {"head_dim", shape.head_dim}, {"groups", shape.groups},
          {"state_dim", shape.state_dim}, {"taps", shape.taps},         {"convolution_bias", shape.convolution_bias}};
}

Json Encode(const EncoderShape& encoder) {
  return {{"layers", encoder.layers},
          {"position_buckets", encoder.position_buckets},
          {"most_distance", encoder.most_distance},
          {"expert_capacity", encoder.expert_capacity},
          {"start", encoder.start}};
}

EncoderShape DecodeEncoder(const Json& encoder) {
  const auto number = [&](const char* name) { return IntOf(encoder.at(name), 0, INT32_MAX); };
  return {.layers = number("layers"),
          .position_buckets = number("position_buckets"),
          .most_distance = number("most_distance"),
          .expert_capacity = number("expert_capacity"),
          .start = number("start")};
}

void DecodeRecurrence(const Json& json, ModelSpec& spec) {
  const auto number_of = [&](const char* shape, const char* name) { return IntOf(json[shape].at(name), 1, INT32_MAX); };
  if (json.contains("delta_net")) {
    const auto number = [&](const char* name) { return number_of("delta_net", name); };
    spec.delta_net = {.key_heads = number("key_heads"),
                      .value_heads = number("value_heads"),
                      .key_dim = number("key_dim"),
                      .value_dim = number("value_dim"),
                      .taps = number("taps"),
                      .key_heads_in_turn = json["delta_net"].value("key_heads_in_turn", false)};
    if (json["delta_net"].contains("gate_rank")) spec.delta_net->gate_rank = number("gate_rank");
  }
  if (json.contains("mamba2")) {
    const auto number = [&](const char* name) { return number_of("mamba2", name); };
    spec.mamba2 = {.heads = number("heads"),
                   .head_dim = number("head_dim"),
                   .groups = number("groups"),
                   .state_dim = number("state_dim"),
                   .taps = number("taps"),
                   .convolution_bias = json["mamba2"].at("convolution_bias").get<bool>()};
  }
  if (json.contains("short_convolution")) spec.short_convolution = {.taps = number_of("short_convolution", "taps")};
  if (json.contains("recurrent")) json["recurrent"].get_to(spec.recurrent);
  if (json.contains("mixers")) json["mixers"].get_to(spec.mixers);
}

void DecodeAttention(const Json& json, ModelSpec& spec) {
  if (json.contains("yarn")) spec.yarn = DecodeYarn(json["yarn"]);
  if (json.contains("divided")) spec.divided = DecodeDivisors(json["divided"]);
  for (const Json& rotation : json.value("more_rotations", Json::array())) {
    spec.more_rotations.push_back({.theta = rotation.at("theta").get<double>()});
    if (rotation.contains("yarn")) spec.more_rotations.back().yarn = DecodeYarn(rotation["yarn"]);
    if (rotation.contains("divided")) spec.more_rotations.back().divided = DecodeDivisors(rotation["divided"]);
    if (rotation.contains("pairs")) spec.more_rotations.back().pairs = IntOf(rotation["pairs"], 1, INT32_MAX);
    if (rotation.contains("rotary_dims")) {
      spec.more_rotations.back().rotary_dims = IntOf(rotation["rotary_dims"], 1, INT32_MAX);
    }
  }
  spec.values_are_keys = json.value("values_are_keys", false);
  for (const Json& heads : json.value("more_heads", Json::array())) {
    spec.more_heads.push_back({.kv_heads = IntOf(heads.at("kv_heads"), 1, INT32_MAX),
                               .head_dim = IntOf(heads.at("head_dim"), 1, INT32_MAX),
                               .values_are_keys = heads.value("values_are_keys", false),
                               .heads = heads.contains("heads") ? IntOf(heads["heads"], 1, INT32_MAX) : 0});
  }
  for (const Json& index : json.value("rotations", Json::array())) spec.rotations.push_back(IntOf(index, 0, INT32_MAX));
  if (json.contains("unrotated_layers")) json["unrotated_layers"].get_to(spec.unrotated_layers);
  for (const Json& window : json.value("windows", Json::array())) spec.windows.push_back(IntOf(window, 0, INT32_MAX));
  spec.windows_are_chunks = json.value("windows_are_chunks", false);
  if (json.contains("temperature")) spec.temperature = DecodeTemperature(json["temperature"]);
  if (json.contains("latent")) {
    const Json& latent = json["latent"];
    spec.latent = {.q_rank = IntOf(latent.at("q_rank"), 0, INT32_MAX),
                   .kv_rank = IntOf(latent.at("kv_rank"), 0, INT32_MAX),
                   .value_dim = IntOf(latent.at("value_dim"), 0, INT32_MAX),
                   .norm_eps = latent.at("norm_eps").get<double>()};
  }
}

// Throws what nlohmann throws for a missing key or another type.
ModelSpec Decode(const Json& json) {
  ModelSpec spec;
  json.at("family").get_to(spec.family);
  for (const SpecInteger& field : SpecIntegers()) {
    const std::string name(field.name);
    if (field.absent && !json.contains(name)) continue;
    spec.*field.member = IntOf(json.at(name), field.low, field.high);
  }
  spec.rms_eps = json.at("rms_eps").get<float>();
  spec.rope_theta = json.at("rope_theta").get<double>();
  for (const SpecFlag& field : SpecFlags()) {
    const std::string name(field.name);
    if (!field.optional || json.contains(name)) spec.*field.member = json.at(name).get<bool>();
  }
  for (const SpecNumber& field : SpecNumbers()) {
    const std::string name(field.name);
    if (json.contains(name)) spec.*field.member = json.at(name).get<double>();
  }
  DecodeAttention(json, spec);
  DecodeRecurrence(json, spec);
  if (json.contains("encoder")) spec.encoder = DecodeEncoder(json["encoder"]);
  if (json.contains("prefix")) {
    const Json& prefix = json["prefix"];
    spec.prefix = {.separator = IntOf(prefix.at("separator"), 0, INT32_MAX),
                   .expert_capacity = IntOf(prefix.at("expert_capacity"), 0, INT32_MAX)};
  }
  if (json.contains("swiglu_limits")) {
    const Json& limits = json["swiglu_limits"];
    spec.swiglu_limits = {.alpha = limits.at("alpha").get<double>(), .limit = limits.at("limit").get<double>()};
  }
  FromName(kQkNorms, json.at("qk_norm").get<std::string>(), spec.qk_norm);
  FromName(kNorms, json.value("norms", kNorms[0].name), spec.norms);
  FromName(kGateKinds, json.value("gate_kind", kGateKinds[0].name), spec.gate_kind);
  FromName(kRouterInputs, json.value("router_input", kRouterInputs[0].name), spec.router_input);
  FromName(kActivations, json.value("activation", kActivations[0].name), spec.activation);
  FromName(kScorings, json.value("router_scoring", kScorings[0].name), spec.router_scoring);
  FromName(kGroupRanks, json.value("router_group_rank", kGroupRanks[0].name), spec.router_group_rank);
  spec.weighs_inputs = json.value("weighs_inputs", false);
  spec.moe = json.at("moe").get<std::vector<bool>>();
  for (const Json& token : json.at("bos")) spec.bos.push_back(TokenId(IntOf(token, 0, INT32_MAX)));
  for (const Json& token : json.at("eos")) spec.eos.push_back(TokenId(IntOf(token, 0, INT32_MAX)));
  return spec;
}

}  // namespace

std::vector<LayerId> ModelSpec::MoeLayers() const {
  std::vector<LayerId> result;
  for (size_t i = 0; i < moe.size(); ++i) {
    if (moe[i]) result.push_back(LayerId(static_cast<int32_t>(i)));
  }
  return result;
}

Recurrence ModelSpec::recurrence() const {
  if (delta_net) return delta_net->recurrence();
  if (mamba2) return mamba2->recurrence();
  if (short_convolution) return {.taps = short_convolution->taps, .convolved_width = hidden, .output_width = hidden};
  return {};
}

int64_t ModelSpec::LargestQueryWidth() const {
  int64_t width = 0;
  for (int i = 0; i < rotation_count(); ++i) {
    width = std::max(width, int64_t{QueryHeads(HeadsOf(i))} * HeadsOf(i).head_dim);
  }
  return width;
}

int64_t ModelSpec::LargestKeyWidth() const {
  int64_t width = 0;
  for (int i = 0; i < rotation_count(); ++i) width = std::max(width, int64_t{HeadsOf(i).kv_heads} * HeadsOf(i).head_dim);
  return width;
}

int ModelSpec::FirstFrequency(int rotation) const {
  int first = 0;
  for (int i = 0; i < rotation; ++i) first += RotaryDims(i) / 2;
  return first;
}

std::string SpecToJson(const ModelSpec& spec) {
  Json json;
  json["family"] = spec.family;
  for (const SpecInteger& field : SpecIntegers()) {
    if (field.absent != spec.*field.member) json[std::string(field.name)] = spec.*field.member;
  }
  json["rms_eps"] = static_cast<double>(spec.rms_eps);
  json["rope_theta"] = spec.rope_theta;
  for (const SpecFlag& field : SpecFlags()) {
    if (!field.optional || spec.*field.member) json[std::string(field.name)] = spec.*field.member;
  }
  for (const SpecNumber& field : SpecNumbers()) {
    if (spec.*field.member != field.absent) json[std::string(field.name)] = spec.*field.member;
  }
  if (spec.yarn) json["yarn"] = Encode(*spec.yarn);
  if (spec.divided) json["divided"] = Encode(*spec.divided);
  for (const Rotation& rotation : spec.more_rotations) json["more_rotations"].push_back(Encode(rotation));
  if (!spec.rotations.empty()) json["rotations"] = spec.rotations;
  if (spec.values_are_keys) json["values_are_keys"] = true;
  for (const HeadShape& heads : spec.more_heads) json["more_heads"].push_back(Encode(heads));
  if (spec.latent) json["latent"] = Encode(*spec.latent);
  if (spec.encoder) json["encoder"] = Encode(*spec.encoder);
  if (spec.prefix) {
    json["prefix"] = {{"separator", spec.prefix->separator}, {"expert_capacity", spec.prefix->expert_capacity}};
  }
  if (!spec.windows.empty()) json["windows"] = spec.windows;
  if (!spec.unrotated_layers.empty()) json["unrotated_layers"] = spec.unrotated_layers;
  if (spec.windows_are_chunks) json["windows_are_chunks"] = true;
  if (spec.temperature) json["temperature"] = Encode(*spec.temperature);
  if (spec.weighs_inputs) json["weighs_inputs"] = true;
  if (spec.delta_net) json["delta_net"] = Encode(*spec.delta_net);
  if (spec.mamba2) json["mamba2"] = Encode(*spec.mamba2);
  if (spec.short_convolution) json["short_convolution"] = {{"taps", spec.short_convolution->taps}};
  if (!spec.recurrent.empty()) json["recurrent"] = spec.recurrent;
  if (!spec.mixers.empty()) json["mixers"] = spec.mixers;
  if (spec.swiglu_limits) json["swiglu_limits"] = {{"alpha", spec.swiglu_limits->alpha}, {"limit", spec.swiglu_limits->limit}};
  json["qk_norm"] = NameOf(kQkNorms, spec.qk_norm);
  if (spec.norms != kNorms[0].value) json["norms"] = NameOf(kNorms, spec.norms);
  if (spec.gate_kind != kGateKinds[0].value) json["gate_kind"] = NameOf(kGateKinds, spec.gate_kind);
  if (spec.router_input != kRouterInputs[0].value) json["router_input"] = NameOf(kRouterInputs, spec.router_input);
  if (spec.activation != kActivations[0].value) json["activation"] = NameOf(kActivations, spec.activation);
  if (spec.router_scoring != kScorings[0].value) json["router_scoring"] = NameOf(kScorings, spec.router_scoring);
  if (spec.router_group_rank != kGroupRanks[0].value) json["router_group_rank"] = NameOf(kGroupRanks, spec.router_group_rank);
  json["moe"] = spec.moe;
  json["bos"] = Values(spec.bos);
  json["eos"] = Values(spec.eos);
  return json.dump();
}

absl::StatusOr<ModelSpec> SpecFromJson(std::string_view json) {
  const absl::StatusOr<Json> parsed = ParseForeignJson<Json>("model spec", json);
  if (!parsed.ok()) return DataLoss(parsed.status().message());
  ModelSpec spec;
  try {
    spec = Decode(*parsed);
    // Unknown keys, other spellings of numbers and lost values all show up here: the text of a spec is unique.
    if (const absl::Status checked = CheckSpec(spec); !checked.ok()) return DataLoss("model spec: ", checked.message());
    if (SpecToJson(spec) != json) return DataLoss("model spec: not in canonical form: ", json.substr(0, 200));
  } catch (const nlohmann::json::exception& error) {
    return DataLoss("model spec: ", error.what());
  }
  return spec;
}

}  // namespace moed
