#include "core/model/config_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/base/json_value.h"
#include "core/base/status.h"

namespace moed {
namespace {

using Json = nlohmann::json;

// Training, bookkeeping and output options: none changes the logits of inference.
constexpr std::string_view kHarmless[] = {
    "_attn_implementation",
    "_commit_hash",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "attn_pdrop",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "dtype",
    "embd_pdrop",
    "finetuning_task",
    "gradient_checkpointing",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "label2id",
    "max_window_layers",
    "name_or_path",
    "num_labels",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "prefix",
    "problem_type",
    "resid_pdrop",
    "return_dict",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "sep_token_id",
    "task_specific_params",
    "tf_legacy_loss",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
};

double YarnMagnitude(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

}  // namespace

absl::StatusOr<ConfigReader> ConfigReader::Parse(std::string name, std::string_view text) {
  try {
    Json root = Json::parse(text.begin(), text.end());
    if (!root.is_object()) return InvalidArgument(name, ": the top level is no object");
    return ConfigReader(std::move(name), std::move(root));
  } catch (const Json::exception& error) {
    return InvalidArgument(name, ": ", error.what());
  }
}

void ConfigReader::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void ConfigReader::FailValue(std::string_view key, const Json& value, std::string_view allowed) {
  Fail(InvalidArgument(name_, ": ", key, " = ", ShownJson(value), " is not supported; allowed: ", allowed));
}

bool ConfigReader::Has(std::string_view key) const {
  const auto at = root_.find(key);
  return at != root_.end() && !at->is_null();
}

const Json* ConfigReader::Find(std::string_view key) {
  read_.emplace(key);
  const auto at = root_.find(key);
  return at == root_.end() || at->is_null() ? nullptr : &*at;
}

const Json* ConfigReader::Required(std::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr) Fail(InvalidArgument(name_, ": key ", key, " is missing"));
  return value;
}

int ConfigReader::CheckedInt(std::string_view key, const Json& value, int64_t low, int64_t high) {
  const bool too_big = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (value.is_number_integer() && !too_big) {
    const auto number = value.get<int64_t>();
    if (number >= low && number <= high) return static_cast<int>(number);
  }
  FailValue(key, value, StrCat("an integer from ", low, " to ", high));
  return static_cast<int>(low);
}

int ConfigReader::Int(std::string_view key, int64_t low, int64_t high) {
  const Json* value = Required(key);
  return value == nullptr ? static_cast<int>(low) : CheckedInt(key, *value, low, high);
}

int ConfigReader::IntOr(std::string_view key, int otherwise, int64_t low, int64_t high) {
  const Json* value = Find(key);
  return value == nullptr ? otherwise : CheckedInt(key, *value, low, high);
}

double ConfigReader::Number(std::string_view key, double low, double high) {
  const Json* value = Required(key);
  if (value == nullptr) return low;
  if (value->is_number() && value->get<double>() >= low && value->get<double>() <= high) return value->get<double>();
  FailValue(key, *value, StrCat("a number from ", low, " to ", high));
  return low;
}

double ConfigReader::NumberOr(std::string_view key, double otherwise, double low, double high) {
  return Has(key) ? Number(key, low, high) : (Find(key), otherwise);
}

bool ConfigReader::BoolOr(std::string_view key, bool otherwise) {
  const Json* value = Find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) FailValue(key, *value, "true, false");
  return value->is_boolean() && value->get<bool>();
}

std::vector<int> ConfigReader::IntsOr(std::string_view key, int64_t low, int64_t high) {
  std::vector<int> numbers;
  const Json* value = Find(key);
  if (value == nullptr) return numbers;
  if (!value->is_array()) return {CheckedInt(key, *value, low, high)};
  for (const Json& item : *value) numbers.push_back(CheckedInt(key, item, low, high));
  return numbers;
}

int ConfigReader::SameInt(std::string_view key, int64_t low, int64_t high) {
  const Json* value = Required(key);
  if (value == nullptr) return static_cast<int>(low);
  if (!value->is_array() || value->empty()) return CheckedInt(key, *value, low, high);
  if (std::any_of(value->begin(), value->end(), [&](const Json& item) { return !item.is_number() || item != value->front(); })) {
    FailValue(key, *value, "one number for all layers");
  }
  return CheckedInt(key, value->front(), low, high);
}

std::string ConfigReader::String(std::string_view key) {
  const Json* value = Required(key);
  if (value == nullptr) return "";
  if (!value->is_string()) FailValue(key, *value, "a string");
  return value->is_string() ? value->get<std::string>() : "";
}

absl::StatusOr<ConfigReader> ConfigReader::Object(std::string_view key) {
  const Json* value = Required(key);
  if (value != nullptr && !value->is_object()) FailValue(key, *value, "an object");
  MOED_RETURN_IF_ERROR(status_);
  return ConfigReader(StrCat(name_, ", ", key), *value);
}

std::vector<std::string> ConfigReader::StringsOr(std::string_view key, size_t count, std::span<const std::string_view> allowed,
                                                 std::vector<std::string> otherwise) {
  const Json* value = Find(key);
  if (value == nullptr) return otherwise;
  std::vector<std::string> strings;
  for (const Json& item : value->is_array() ? *value : Json::array()) {
    const std::string string = item.is_string() ? item.get<std::string>() : "";
    if (std::find(allowed.begin(), allowed.end(), string) != allowed.end()) strings.push_back(string);
  }
  if (strings.size() == count && value->size() == count) return strings;
  FailValue(key, *value, StrCat("a list of ", count, " of ", JoinNames(allowed, [](std::string_view name) { return name; })));
  return otherwise;
}

void ConfigReader::Only(std::string_view key, std::initializer_list<Json> allowed) {
  const Json* value = Find(key);
  if (value == nullptr || std::find(allowed.begin(), allowed.end(), *value) != allowed.end()) return;
  FailValue(key, *value, JoinNames(allowed, [](const Json& item) { return ShownJson(item); }));
}

std::string_view ConfigReader::Spelling(std::string_view one, std::string_view other) {
  const Json* first = Find(one);
  const Json* second = Find(other);
  if (first != nullptr && second != nullptr && *first != *second) {
    Fail(InvalidArgument(name_, ": ", one, " = ", ShownJson(*first), " contradicts ", other, " = ", ShownJson(*second)));
  }
  return first == nullptr && second != nullptr ? other : one;
}

void ConfigReader::OnlyNames(std::string_view key, const Json& object, std::span<const std::string_view> known) {
  for (const auto& [name, value] : object.items()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    FailValue(StrCat(key, ".", name), value, JoinNames(known, [](std::string_view one) { return one; }));
  }
}

std::optional<double> ConfigReader::NumberIn(std::string_view key, const Json& object, std::string_view name) {
  const auto at = object.find(name);
  if (at == object.end() || at->is_null()) return std::nullopt;
  if (!at->is_number()) FailValue(StrCat(key, ".", name), *at, "a number");
  return at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
}

// As transformers: mscale counts with mscale_all_dim alone, an attention_factor before both.
YarnScaling ConfigReader::ReadYarn(std::string_view key, const Json& object) {
  static constexpr std::string_view kKnown[] = {"rope_type", "type",           "rope_theta", "partial_rotary_factor",
                                                "factor",    "beta_fast",      "beta_slow",  "attention_factor",
                                                "mscale",    "mscale_all_dim", "truncate",   "original_max_position_embeddings"};
  OnlyNames(key, object, kKnown);
  const auto required = [&](std::string_view name) {
    const std::optional<double> number = NumberIn(key, object, name);
    if (!number) Fail(InvalidArgument(name_, ": key ", key, ".", name, " is missing; YaRN needs it"));
    return number.value_or(1);
  };
  YarnScaling yarn;
  yarn.factor = required("factor");
  const double positions = required("original_max_position_embeddings");
  if (!(positions >= 1 && positions <= 1 << 24 && positions == std::floor(positions))) {
    Fail(InvalidArgument(name_, ": ", key, ".original_max_position_embeddings = ", positions, " is no whole number in 1..",
                         1 << 24));
  } else {
    yarn.original_positions = static_cast<int>(positions);
  }
  yarn.beta_fast = NumberIn(key, object, "beta_fast").value_or(yarn.beta_fast);
  yarn.beta_slow = NumberIn(key, object, "beta_slow").value_or(yarn.beta_slow);
  const auto magnitude = [&](double mscale) { return YarnMagnitude(yarn.factor, mscale); };
  const double mscale = NumberIn(key, object, "mscale").value_or(0), all = NumberIn(key, object, "mscale_all_dim").value_or(0);
  const double own = mscale != 0 && all != 0 ? magnitude(mscale) / magnitude(all) : magnitude(1);
  yarn.attention_factor = NumberIn(key, object, "attention_factor").value_or(own);
  if (const auto truncate = object.find("truncate"); truncate != object.end()) {
    if (!truncate->is_boolean()) FailValue(StrCat(key, ".truncate"), *truncate, "true, false");
    yarn.truncate = !truncate->is_boolean() || truncate->get<bool>();
  }
  return yarn;
}

// Some checkpoints call a fixed alpha "dynamic"; the other numbers beside it count for nothing.
double ConfigReader::ReadNtkAlpha(std::string_view key, const Json& object) {
  static constexpr std::string_view kKnown[] = {"rope_type", "type",   "rope_theta", "alpha",         "beta_fast",
                                                "beta_slow", "factor", "mscale",     "mscale_all_dim"};
  OnlyNames(key, object, kKnown);
  const double alpha = NumberIn(key, object, "alpha").value_or(0);
  if (alpha >= 1 && alpha <= 1e6) return alpha;
  Fail(InvalidArgument(name_, ": ", key, ".rope_type = \"dynamic\" is supported with an alpha from 1 to 1e6 alone"));
  return 1;
}

ConfigReader::RopeObject ConfigReader::ReadRopeObject(std::string_view key, const Json* object, const RopeKinds& kinds) {
  RopeObject rope;
  if (object == nullptr) return rope;
  if (!object->is_object()) {
    FailValue(key, *object, "null or an object");
    return rope;
  }
  const Json type = object->value("rope_type", object->value("type", Json()));
  if (type == "yarn") {
    rope.yarn = ReadYarn(key, *object);
    rope.all_dims_magnitude = YarnMagnitude(rope.yarn->factor, NumberIn(key, *object, "mscale_all_dim").value_or(0));
  }
  if (type == "dynamic" && kinds.ntk_alpha) rope.ntk_alpha = ReadNtkAlpha(key, *object);
  for (const auto& [name, value] : object->items()) {
    const std::string path = StrCat(key, ".", name);
    if (name == "rope_theta" && value.is_number()) {
      rope.theta = value.get<double>();
    } else if (name == "rope_type" || name == "type") {
      const bool known = value == "default" || value == "yarn" || (value == "dynamic" && kinds.ntk_alpha);
      if (!known)
        FailValue(path, value, kinds.ntk_alpha ? "\"default\", \"yarn\", \"dynamic\" with alpha" : "\"default\", \"yarn\"");
    } else if (name == "partial_rotary_factor" && value.is_number()) {
      rope.partial = value.get<double>();
    } else if (kinds.mrope && (name == "mrope_section" || name == "mrope_interleaved")) {
      continue;
    } else if (!rope.yarn && !rope.ntk_alpha) {
      FailValue(path, value, "rope_type = \"default\", rope_theta = a number, partial_rotary_factor = 1");
    }
  }
  return rope;
}

ConfigReader::Rope ConfigReader::ReadRope(const RopeKinds& kinds) {
  const auto read = [&](std::string_view key) { return ReadRopeObject(key, Find(key), kinds); };
  const RopeObject scaling = read("rope_scaling"), parameters = read("rope_parameters");
  if (scaling.yarn && parameters.yarn && *scaling.yarn != *parameters.yarn) {
    Fail(InvalidArgument(name_, ": rope_scaling contradicts rope_parameters"));
  }
  Rope rope;
  rope.yarn = scaling.yarn ? scaling.yarn : parameters.yarn;
  rope.all_dims_magnitude = (scaling.yarn ? scaling : parameters).all_dims_magnitude;
  rope.ntk_alpha = scaling.ntk_alpha.value_or(parameters.ntk_alpha.value_or(1));

  std::optional<double> own_theta, own_partial, theta, partial;
  if (Has("rope_theta")) own_theta = Number("rope_theta", 1, 1e15);
  if (Has("partial_rotary_factor")) own_partial = Number("partial_rotary_factor", 0, 1);
  Known({"rope_theta", "partial_rotary_factor"});
  for (const std::optional<double>& other : {own_theta, scaling.theta, parameters.theta}) {
    if (theta && other && *theta != *other)
      Fail(InvalidArgument(name_, ": rope_theta is given twice: ", *theta, " and ", *other));
    if (!theta) theta = other;
  }
  if (!theta) Fail(InvalidArgument(name_, ": key rope_theta is missing"));
  rope.theta = theta.value_or(1);
  for (const auto& [key, given] :
       {std::pair("partial_rotary_factor", own_partial), std::pair("rope_scaling.partial_rotary_factor", scaling.partial),
        std::pair("rope_parameters.partial_rotary_factor", parameters.partial)}) {
    if (!given) continue;
    const bool allowed = kinds.partial ? *given > 0 && *given <= 1 : *given == 1;
    if (!allowed) FailValue(key, *given, kinds.partial ? "a number above 0, at most 1" : "1");
    if (partial && *partial != *given) FailValue(key, *given, StrCat("the other one's ", *partial));
    partial = given;
  }
  rope.partial = partial;
  return rope;
}

std::vector<std::optional<Rotation>> ConfigReader::ReadRotations(std::span<const std::string_view> layer_types) {
  constexpr std::string_view kKey = "rope_parameters";
  std::vector<std::optional<Rotation>> rotations(layer_types.size());
  const Json* parameters = Find(kKey);
  if (parameters == nullptr) return rotations;
  if (!parameters->is_object()) FailValue(kKey, *parameters, "null or an object");
  for (const auto& [type, object] : parameters->items()) {
    const std::string path = StrCat(kKey, ".", type);
    const auto known = std::find(layer_types.begin(), layer_types.end(), type);
    if (known == layer_types.end()) {
      FailValue(path, object, StrCat("one for each of ", JoinNames(layer_types, [](std::string_view name) { return name; })));
      continue;
    }
    const RopeObject rope = ReadRopeObject(path, &object, {});
    if (!rope.theta) Fail(InvalidArgument(name_, ": key ", path, ".rope_theta is missing"));
    if (rope.partial && *rope.partial != 1) FailValue(StrCat(path, ".partial_rotary_factor"), *rope.partial, "1");
    rotations[known - layer_types.begin()] = Rotation{rope.theta.value_or(1), rope.yarn};
  }
  return rotations;
}

void ConfigReader::ReadQuantization(std::string_view method) {
  const Json* value = Find("quantization_config");
  if (value == nullptr) return;
  if (!value->is_object() || value->value("quant_method", Json()) != method) {
    FailValue("quantization_config", *value, StrCat("null, an object with quant_method = \"", method, "\""));
  }
}

absl::Status ConfigReader::Finish() const {
  MOED_RETURN_IF_ERROR(status_);
  for (const auto& [key, value] : root_.items()) {
    if (read_.contains(key) || std::find(std::begin(kHarmless), std::end(kHarmless), key) != std::end(kHarmless)) continue;
    return InvalidArgument(name_, ": unknown key ", ShownJson(Json(key)), " = ", ShownJson(value),
                           " might change what the model computes; keys that are understood: ",
                           JoinNames(read_, [](const std::string& name) { return name; }));
  }
  return absl::OkStatus();
}

}  // namespace moed
