// What a config.json says of rotary embeddings.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <string>
#include <utility>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/model/config_reader.h"

namespace moed {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kTemperature = "llama_4_scaling_beta";
constexpr std::string_view kSections[] = {"mrope_section", "mrope_interleaved", "interleaved"};

std::string AllowedTypes(const ConfigReader::RopeKinds& kinds) {
  return StrCat("\"default\", \"yarn\"", kinds.scaled ? ", \"linear\", \"llama3\"" : "", kinds.long_rope ? ", \"longrope\"" : "",
                kinds.ntk_alpha ? ", \"dynamic\" with alpha" : "", kinds.proportional ? ", \"proportional\"" : "");
}

double YarnMagnitude(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

}  // namespace

// As transformers: mscale counts with mscale_all_dim alone, an attention_factor before both.
YarnScaling ConfigReader::ReadYarn(std::string_view key, const Json& object, const RopeKinds& kinds) {
  static constexpr std::string_view kKnown[] = {"rope_type", "type",           "rope_theta", "partial_rotary_factor",
                                                "factor",    "beta_fast",      "beta_slow",  "attention_factor",
                                                "mscale",    "mscale_all_dim", "truncate",   "original_max_position_embeddings"};
  std::vector<std::string_view> known(std::begin(kKnown), std::end(kKnown));
  if (kinds.mrope) known.insert(known.end(), std::begin(kSections), std::end(kSections));
  if (kinds.temperature) known.insert(known.end(), {kTemperature, "max_position_embeddings"});
  OnlyNames(key, object, known);
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

std::vector<double> ConfigReader::NumbersIn(std::string_view key, const Json& object, std::string_view name) {
  const Json numbers = object.value(name, Json());
  std::vector<double> values;
  const bool known = numbers.is_array() && std::ranges::all_of(numbers, [](const Json& number) { return number.is_number(); });
  if (!known) FailValue(StrCat(key, ".", name), numbers, "a list of numbers");
  if (known) numbers.get_to(values);
  return values;
}

// As transformers: an attention_factor before what follows from how much longer contexts may become.
ConfigReader::LongRope ConfigReader::ReadLongRope(std::string_view key, const Json& object, const RopeKinds& kinds) {
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  static constexpr std::string_view kKnown[] = {"rope_type",    "type",        "rope_theta", "partial_rotary_factor", kOriginal,
                                                "short_factor", "long_factor", "factor",     "attention_factor"};
  std::vector<std::string_view> known(std::begin(kKnown), std::end(kKnown));
  if (kinds.long_rope_magnitudes) known.insert(known.end(), {"short_mscale", "long_mscale"});
  OnlyNames(key, object, known);
  LongRope rope = {.for_short = {NumbersIn(key, object, "short_factor")}, .for_long = {NumbersIn(key, object, "long_factor")}};
  const int positions = Int("max_position_embeddings", 1, 1 << 24);
  const double original = NumberIn(key, object, kOriginal).value_or(IntOr(kOriginal, 0, 1, 1 << 24));
  if (!(original >= 1 && original <= positions && original == std::floor(original))) {
    Fail(InvalidArgument(name_, ": ", key, ".", kOriginal, " = ", original, " is no whole number in 1..", positions,
                         ", max_position_embeddings"));
    return rope;
  }
  rope.original_positions = static_cast<int>(original);
  const double factor = NumberIn(key, object, "factor").value_or(positions / original);
  const double usual = factor <= 1 || original <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  const double both = NumberIn(key, object, "attention_factor").value_or(usual);
  rope.for_short.attention_factor = NumberIn(key, object, "short_mscale").value_or(both);
  rope.for_long.attention_factor = NumberIn(key, object, "long_mscale").value_or(both);
  return rope;
}

ConfigReader::ScaledRope ConfigReader::ReadScaledRope(std::string_view key, const Json& object, bool llama3,
                                                      const RopeKinds& kinds) {
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  std::vector<std::string_view> known = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor"};
  if (llama3) known.insert(known.end(), {"low_freq_factor", "high_freq_factor", kOriginal});
  if (kinds.mrope) known.insert(known.end(), std::begin(kSections), std::end(kSections));
  OnlyNames(key, object, known);
  const auto required = [&](std::string_view name, double low, double high) {
    const double number = NumberIn(key, object, name).value_or(0);
    if (number >= low && number <= high) return number;
    Fail(InvalidArgument(name_, ": ", key, ".", name, " has to be a number in ", low, "..", high));
    return low;
  };
  ScaledRope rope = {.factor = required("factor", 1, 1e6)};
  if (!llama3) return rope;
  rope.low_freq_factor = required("low_freq_factor", 1e-6, 1e6);
  rope.high_freq_factor = required("high_freq_factor", 1e-6, 1e6);
  rope.original_positions = required(kOriginal, 1, 1 << 24);
  if (rope.high_freq_factor >= rope.low_freq_factor) return rope;
  Fail(InvalidArgument(name_, ": ", key, ".high_freq_factor = ", rope.high_freq_factor,
                       " is below low_freq_factor = ", rope.low_freq_factor));
  return rope;
}

FrequencyDivisors ConfigReader::ScaledRope::Divisors(double theta, int dims) const {
  FrequencyDivisors divided = {.divisors = std::vector<double>(static_cast<size_t>(dims / 2), factor)};
  for (size_t i = 0; original_positions > 0 && i < divided.divisors.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi * std::pow(theta, 2.0 * static_cast<double>(i) / dims);
    const double turns = original_positions / wavelength;
    const double range = high_freq_factor - low_freq_factor, above = turns - low_freq_factor;
    const double stays = range > 0 ? std::clamp(above / range, 0.0, 1.0) : above < 0 ? 0 : 1;
    divided.divisors[i] = 1 / ((1 - stays) / factor + stays);
  }
  return divided;
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
  rope.kind = type.is_string() ? type.get<std::string>() : "default";
  if (type == "yarn") {
    rope.yarn = ReadYarn(key, *object, kinds);
    rope.all_dims_magnitude = YarnMagnitude(rope.yarn->factor, NumberIn(key, *object, "mscale_all_dim").value_or(0));
    if (kinds.temperature) rope.temperature = NumberIn(key, *object, kTemperature);
  }
  if (type == "longrope" && kinds.long_rope) rope.long_rope = ReadLongRope(key, *object, kinds);
  if ((type == "linear" || type == "llama3") && kinds.scaled) {
    rope.scaled = ReadScaledRope(key, *object, type == "llama3", kinds);
  }
  if (type == "dynamic" && kinds.ntk_alpha) rope.ntk_alpha = ReadNtkAlpha(key, *object);
  rope.proportional = type == "proportional" && kinds.proportional;
  const auto known = [&](const Json& kind) {
    return kind == "default" || kind == "yarn" || (kind == "longrope" && kinds.long_rope) ||
           (kind == "dynamic" && kinds.ntk_alpha) || rope.scaled || rope.proportional;
  };
  const auto refuse = [&](std::string_view name, const Json& kind) {
    FailValue(StrCat(key, ".", name), kind, AllowedTypes(kinds));
  };
  // Before its numbers, which are others for others.
  if (!type.is_null() && !known(type)) refuse(object->contains("rope_type") ? "rope_type" : "type", type);
  for (const auto& [name, value] : object->items()) {
    const std::string path = StrCat(key, ".", name);
    if (name == "rope_theta" && value.is_number()) {
      rope.theta = value.get<double>();
    } else if (name == "rope_type" || name == "type") {
      if (!known(value)) refuse(name, value);
    } else if (name == "partial_rotary_factor" && value.is_number()) {
      rope.partial = value.get<double>();
    } else if (kinds.mrope && std::ranges::count(kSections, name) > 0) {
      continue;
    } else if (!rope.yarn && !rope.long_rope && !rope.scaled && !rope.ntk_alpha) {
      FailValue(path, value, "rope_type = \"default\", rope_theta = a number, partial_rotary_factor = 1");
    }
  }
  return rope;
}

ConfigReader::Rope ConfigReader::ReadRope(const RopeKinds& kinds) {
  const auto read = [&](std::string_view key) { return ReadRopeObject(key, Find(key), kinds); };
  const RopeObject scaling = read("rope_scaling"), parameters = read("rope_parameters");
  if ((scaling.yarn && parameters.yarn && *scaling.yarn != *parameters.yarn) ||
      (scaling.long_rope && parameters.long_rope && *scaling.long_rope != *parameters.long_rope) ||
      (scaling.scaled && parameters.scaled && *scaling.scaled != *parameters.scaled)) {
    Fail(InvalidArgument(name_, ": rope_scaling contradicts rope_parameters"));
  }
  Rope rope;
  rope.yarn = scaling.yarn ? scaling.yarn : parameters.yarn;
  rope.long_rope = scaling.long_rope ? scaling.long_rope : parameters.long_rope;
  rope.scaled = scaling.scaled ? scaling.scaled : parameters.scaled;
  rope.all_dims_magnitude = (scaling.yarn ? scaling : parameters).all_dims_magnitude;
  rope.temperature = (scaling.yarn ? scaling : parameters).temperature;
  rope.ntk_alpha = scaling.ntk_alpha.value_or(parameters.ntk_alpha.value_or(1));

  std::optional<double> own_theta, own_partial, theta, partial;
  if (Has("rope_theta")) own_theta = Number("rope_theta", 1, 1e15);
  if (Has("partial_rotary_factor")) own_partial = Number("partial_rotary_factor", 0, 1);
  if (kinds.partial) RefuseNull("partial_rotary_factor", "a number above 0, at most 1");
  Known({"rope_theta", "partial_rotary_factor"});
  for (const std::optional<double>& other : {own_theta, scaling.theta, parameters.theta}) {
    if (theta && other && *theta != *other)
      Fail(InvalidArgument(name_, ": rope_theta is given twice: ", *theta, " and ", *other));
    if (!theta) theta = other;
  }
  if (scaling.kind && parameters.kind && *scaling.kind != *parameters.kind) {
    Fail(InvalidArgument(name_, ": rope_scaling is of type \"", *scaling.kind, "\" and rope_parameters of \"", *parameters.kind,
                         "\"; allowed: one of them, or the same in both"));
  }
  if (!theta) theta = kinds.theta;
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

// transformers looks for it beside the objects, where nobody writes it.
void ConfigReader::RefuseWithoutTruncate(std::string_view path, const RopeObject& rope) {
  if (rope.yarn && !rope.yarn->truncate) FailValue(StrCat(path, ".truncate"), false, "true");
}

std::vector<std::optional<Rotation>> ConfigReader::ReadRotations(std::span<const std::string_view> layer_types,
                                                                 std::span<const int> proportional) {
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
    const RopeObject rope = ReadRopeObject(path, &object, {.proportional = !proportional.empty()});
    RefuseWithoutTruncate(path, rope);
    if (!rope.theta) Fail(InvalidArgument(name_, ": key ", path, ".rope_theta is missing"));
    const auto at = known - layer_types.begin();
    const double partial = rope.partial.value_or(1);
    const int pairs = rope.proportional && partial > 0 && partial <= 1 ? static_cast<int>(partial * proportional[at] / 2) : 0;
    if (partial != 1 && pairs == 0) {
      FailValue(StrCat(path, ".partial_rotary_factor"), partial,
                rope.proportional ? "a number of which a pair at least turns, at most 1" : "1");
    }
    rotations[at] = Rotation{rope.theta.value_or(1), rope.yarn, partial < 1 ? pairs : 0};
  }
  return rotations;
}

std::vector<std::optional<Rotation>> ConfigReader::ReadPartRotations(std::span<const std::string_view> layer_types,
                                                                     int head_dim) {
  constexpr std::string_view kKey = "rope_parameters", kOriginal = "original_max_position_embeddings";
  const double others = NumberOr("partial_rotary_factor", 1, 0, 1);
  std::vector<std::optional<Rotation>> rotations(layer_types.size());
  const Json* parameters = Find(kKey);
  if (parameters == nullptr) return rotations;
  if (!parameters->is_object()) {
    FailValue(kKey, *parameters, "null or an object");
    return rotations;
  }
  const std::optional<double> original = NumberIn(kKey, *parameters, kOriginal);
  for (size_t i = 0; i < layer_types.size(); ++i) {
    const auto found = parameters->find(layer_types[i]);
    if (found == parameters->end() || found->is_null()) continue;
    const std::string path = StrCat(kKey, ".", layer_types[i]);
    Json object = *found;
    if (original && object.is_object() && object.value("rope_type", Json()) == "yarn") object.emplace(kOriginal, *original);
    const RopeObject rope = ReadRopeObject(path, &object, {.partial = true});
    RefuseWithoutTruncate(path, rope);
    if (!rope.theta) Fail(InvalidArgument(name_, ": key ", path, ".rope_theta is missing"));
    const double part = rope.partial.value_or(others);
    const int dims = part > 0 && part <= 1 ? static_cast<int>(head_dim * part) : 0;
    if (dims < 2) FailValue(StrCat(path, ".partial_rotary_factor"), part, "a number of which a pair at least turns, at most 1");
    rotations[i] = Rotation{.theta = rope.theta.value_or(1), .yarn = rope.yarn, .rotary_dims = dims};
  }
  std::vector<std::string_view> known(layer_types.begin(), layer_types.end());
  known.push_back(kOriginal);
  OnlyNames(kKey, *parameters, known);
  return rotations;
}

}  // namespace moed
