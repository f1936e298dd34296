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

// Training, bookkeeping, output and sampling options: none changes the logits of inference.
constexpr std::string_view kHarmless[] = {
    "_attn_implementation",
    "_commit_hash",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "attn_pdrop",
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "label2id",
    "length_penalty",
    "max_length",
    "max_window_layers",
    "min_length",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

std::string WithInfinityAsObject(std::string_view text) {
  constexpr std::string_view kWord = "Infinity", kObject = R"({"__float__": "Infinity"})";
  std::string result;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!in_string && text.substr(i).starts_with(kWord)) {
      result += kObject;
      i += kWord.size() - 1;
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\' && i + 1 < text.size()) result += text[i++];
    result += text[i];
  }
  return result;
}

}  // namespace

absl::StatusOr<Json> ParseConfigJson(std::string_view name, std::string_view text) {
  return ParseForeignJson<Json>(name, WithInfinityAsObject(text));
}

absl::StatusOr<ConfigReader> ConfigReader::Parse(std::string name, std::string_view text) {
  MOED_ASSIGN_OR_RETURN(Json root, ParseConfigJson(name, text));
  if (!root.is_object()) return InvalidArgument(name, ": the top level is no object");
  return ConfigReader(std::move(name), std::move(root));
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

bool ConfigReader::IsNull(std::string_view key) const {
  const auto at = root_.find(key);
  return at != root_.end() && at->is_null();
}

void ConfigReader::RefuseNull(std::string_view key, std::string_view allowed) {
  if (IsNull(key)) FailValue(key, Json(), allowed);
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
  if (otherwise) RefuseNull(key, "true, false");  // transformers takes null for false, wherever absence means true
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

bool ConfigReader::TruthOr(std::string_view key, bool otherwise) {
  const Json* value = Find(key);
  if (value == nullptr || value->is_boolean()) return BoolOr(key, otherwise);
  return CheckedInt(key, *value, 0, INT32_MAX) != 0;
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

std::vector<std::string> ConfigReader::Strings(std::string_view key, std::span<const std::string_view> allowed) {
  const Json* value = Required(key);
  return StringsOr(key, value != nullptr && value->is_array() ? value->size() : 1, allowed, {});
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

bool ConfigReader::Is(std::string_view key, const Json& value) {
  const Json* const own = Find(key);
  return own != nullptr && *own == value;
}

void ConfigReader::Only(std::string_view key, std::initializer_list<Json> allowed) {
  const Json* value = Find(key);
  if (value == nullptr || std::find(allowed.begin(), allowed.end(), *value) != allowed.end()) return;
  FailValue(key, *value, allowed.size() == 0 ? "null" : JoinNames(allowed, [](const Json& item) { return ShownJson(item); }));
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
