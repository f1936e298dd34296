#include <algorithm>
#include <array>
#include <span>

#include "absl/strings/escaping.h"
#include "core/base/status.h"
#include "core/tokenizer/compile.h"
#include "core/tokenizer/normalizer.h"
#include "core/tokenizer/pre_tokenizer.h"
#include "core/tokenizer/unicode.h"

namespace moed {
namespace {

constexpr std::string_view kByteLevelPattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// One type of step: its name and what it adds to the spec.
struct StepType {
  std::string_view type;
  absl::Status (*add)(const Json& json, const std::string& name, TokenizerSpec& spec);
};

absl::Status AddSteps(const Json& json, std::string_view part, const char* members, std::span<const StepType> types,
                      TokenizerSpec& spec) {
  MOED_ASSIGN_OR_RETURN(const auto steps, FlattenSequence(json, part, members));
  for (const Json* step : steps) {
    MOED_ASSIGN_OR_RETURN(const std::string type, TypeOf(*step, part));
    const auto known = std::ranges::find(types, type, &StepType::type);
    if (known == types.end()) {
      return InvalidArgument(part, " of type ", type, " is not supported; supported: Sequence, ",
                             JoinNames(types, [](const StepType& t) { return t.type; }));
    }
    MOED_RETURN_IF_ERROR(known->add(*step, StrCat(part, ".", type), spec));
  }
  return absl::OkStatus();
}

struct PatternText {
  std::string text;
  bool literal;
};

// {"String": "..."} or {"Regex": "..."}.
absl::StatusOr<PatternText> ReadPattern(const JsonPart& part) {
  const Json& json = part.json("pattern");
  if (json.is_object() && json.size() == 1) {
    for (const bool literal : {true, false}) {
      const auto found = json.find(literal ? "String" : "Regex");
      if (found != json.end() && found->is_string()) return PatternText{found->get<std::string>(), literal};
    }
  }
  return part.Wrong("pattern", R"({"String": text}, {"Regex": text})");
}

template <class E, size_t N>
absl::StatusOr<E> ReadName(const JsonPart& part, std::string_view key, const std::array<std::string_view, N>& names) {
  MOED_ASSIGN_OR_RETURN(const std::string name, part.String(key));
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return part.Wrong(key, JoinNames(names, [](std::string_view known) { return known; }));
  return static_cast<E>(found - names.begin());
}

absl::StatusOr<std::string> ReadCharacter(const JsonPart& part, std::string_view key) {
  MOED_ASSIGN_OR_RETURN(std::string text, part.String(key));
  if (text.empty() || FirstCharacterBytes(text) != text.size()) return part.Wrong(key, "one character");
  return text;
}

// Normalizer.

absl::Status AddNfc(const Json& json, const std::string& name, TokenizerSpec& spec) {
  spec.normalizer.push_back({NormalizerStep::Kind::kNfc, true, "", ""});
  return JsonPart::Open(json, name, {"type"}).status();
}

absl::Status AddPrepend(const Json& json, const std::string& name, TokenizerSpec& spec) {
  MOED_ASSIGN_OR_RETURN(const JsonPart part, JsonPart::Open(json, name, {"type", "prepend"}));
  MOED_ASSIGN_OR_RETURN(std::string content, part.String("prepend"));
  spec.normalizer.push_back({NormalizerStep::Kind::kPrepend, true, "", std::move(content)});
  return absl::OkStatus();
}

absl::Status AddReplace(const Json& json, const std::string& name, TokenizerSpec& spec) {
  MOED_ASSIGN_OR_RETURN(const JsonPart part, JsonPart::Open(json, name, {"type", "pattern", "content"}));
  MOED_ASSIGN_OR_RETURN(PatternText pattern, ReadPattern(part));
  MOED_ASSIGN_OR_RETURN(std::string content, part.String("content"));
  spec.normalizer.push_back({NormalizerStep::Kind::kReplace, pattern.literal, std::move(pattern.text), std::move(content)});
  return absl::OkStatus();
}

absl::Status AddPrecompiled(const Json& json, const std::string& name, TokenizerSpec& spec) {
  MOED_ASSIGN_OR_RETURN(const JsonPart part, JsonPart::Open(json, name, {"type", "precompiled_charsmap"}));
  if (!part.HasValue("precompiled_charsmap") || part.json("precompiled_charsmap") == "") return absl::OkStatus();
  MOED_ASSIGN_OR_RETURN(const std::string encoded, part.String("precompiled_charsmap"));
  std::string bytes;
  if (!absl::Base64Unescape(encoded, &bytes)) return part.Wrong("precompiled_charsmap", "base64");
  spec.normalizer.push_back({NormalizerStep::Kind::kPrecompiled, true, "", std::move(bytes)});
  return absl::OkStatus();
}

absl::Status AddStripNormalizer(const Json& json, const std::string& name, TokenizerSpec& spec) {
  MOED_ASSIGN_OR_RETURN(const JsonPart part, JsonPart::Open(json, name, {"type", "strip_left", "strip_right"}));
  MOED_ASSIGN_OR_RETURN(const bool left, part.BoolOr("strip_left", true));
  MOED_ASSIGN_OR_RETURN(const bool right, part.BoolOr("strip_right", true));
  if (left) return part.Wrong("strip_left", "false");
  if (right) spec.normalizer.push_back({NormalizerStep::Kind::kStripRight, true, "", ""});
  return absl::OkStatus();
}

constexpr std::array<StepType, 5> kNormalizers = {{{"NFC", AddNfc},
                                                   {"Prepend", AddPrepend},
                                                   {"Replace", AddReplace},
                                                   {"Precompiled", AddPrecompiled},
                                                   {"Strip", AddStripNormalizer}}};

// Pre-tokenizer.

absl::Status AddByteLevel(const Json& json, const std::string& name, TokenizerSpec& spec) {
  MOED_ASSIGN_OR_RETURN(const JsonPart part,
                        JsonPart::Open(json, name, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  MOED_ASSIGN_OR_RETURN(const bool prefix, part.Bool("add_prefix_space"));
  MOED_ASSIGN_OR_RETURN(const bool split, part.BoolOr("use_regex", true));
  PreTokenizerStep step;
  if (prefix) step.prefix_rule = PrefixRule::kEveryPiece, step.prefix = " ";
  if (split) step.pattern = kByteLevelPattern;
  if (prefix || split) spec.pre_tokenizer.push_back(std::move(step));
  spec.bpe.byte_level = true;
  return absl::OkStatus();
}

constexpr std::array<std::string_view, kSplitBehaviors> kBehaviorNames = {"Isolated", "Removed", "MergedWithPrevious",
                                                                          "MergedWithNext", "Contiguous"};

absl::Status AddSplit(const Json& json, const std::string& name, TokenizerSpec& spec) {
  MOED_ASSIGN_OR_RETURN(const JsonPart part, JsonPart::Open(json, name, {"type", "pattern", "behavior", "invert"}));
  MOED_ASSIGN_OR_RETURN(PatternText pattern, ReadPattern(part));
  if (pattern.text.empty()) return part.Wrong("pattern", "a pattern that is not empty");
  PreTokenizerStep step;
  step.pattern = std::move(pattern.text);
  step.literal = pattern.literal;
  MOED_ASSIGN_OR_RETURN(step.behavior, ReadName<SplitBehavior>(part, "behavior", kBehaviorNames));
  MOED_ASSIGN_OR_RETURN(step.invert, part.BoolOr("invert", false));
  spec.pre_tokenizer.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status AddDigits(const Json& json, const std::string& name, TokenizerSpec& spec) {
  MOED_ASSIGN_OR_RETURN(const JsonPart part, JsonPart::Open(json, name, {"type", "individual_digits"}));
  MOED_ASSIGN_OR_RETURN(const bool individual, part.BoolOr("individual_digits", false));
  PreTokenizerStep step;
  step.pattern = individual ? "\\p{N}" : "\\p{N}+";
  spec.pre_tokenizer.push_back(std::move(step));
  return absl::OkStatus();
}

constexpr std::array<std::string_view, kPrefixRules> kPrefixRuleNames = {"never", "first", "always"};

absl::StatusOr<PrefixRule> MetaspacePrefixRule(const JsonPart& part) {
  MOED_ASSIGN_OR_RETURN(const bool add_prefix_space, part.BoolOr("add_prefix_space", true));
  if (!part.HasValue("prepend_scheme")) return add_prefix_space ? PrefixRule::kEveryPiece : PrefixRule::kNever;
  MOED_ASSIGN_OR_RETURN(const auto rule, ReadName<PrefixRule>(part, "prepend_scheme", kPrefixRuleNames));
  if (!add_prefix_space && rule != PrefixRule::kNever) return part.Wrong("prepend_scheme", "never (add_prefix_space is false)");
  return rule;
}

absl::StatusOr<JsonPart> OpenMetaspace(const Json& json, const std::string& name) {
  return JsonPart::Open(json, name, {"type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
}

absl::Status AddMetaspace(const Json& json, const std::string& name, TokenizerSpec& spec) {
  MOED_ASSIGN_OR_RETURN(const JsonPart part, OpenMetaspace(json, name));
  MOED_ASSIGN_OR_RETURN(const std::string space, ReadCharacter(part, "replacement"));
  MOED_ASSIGN_OR_RETURN(const bool split, part.BoolOr("split", true));
  PreTokenizerStep step;
  MOED_ASSIGN_OR_RETURN(step.prefix_rule, MetaspacePrefixRule(part));
  step.space = space;
  step.prefix = space;
  step.literal = true;
  step.behavior = SplitBehavior::kMergedWithNext;
  if (split) step.pattern = space;
  spec.pre_tokenizer.push_back(std::move(step));
  return absl::OkStatus();
}

// What has the property White_Space.
absl::Status AddWhitespaceSplit(const Json& json, const std::string& name, TokenizerSpec& spec) {
  PreTokenizerStep step;
  step.pattern = R"([\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}]+)";
  step.behavior = SplitBehavior::kRemoved;
  spec.pre_tokenizer.push_back(std::move(step));
  return JsonPart::Open(json, name, {"type"}).status();
}

constexpr std::array<StepType, 5> kPreTokenizers = {{{"ByteLevel", AddByteLevel},
                                                     {"Split", AddSplit},
                                                     {"Digits", AddDigits},
                                                     {"Metaspace", AddMetaspace},
                                                     {"WhitespaceSplit", AddWhitespaceSplit}}};

absl::Status CheckByteLevelIsLast(const Json& json) {
  MOED_ASSIGN_OR_RETURN(const auto steps, FlattenSequence(json, "pre_tokenizer", "pretokenizers"));
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    MOED_ASSIGN_OR_RETURN(const std::string type, TypeOf(*steps[i], "pre_tokenizer"));
    if (type == "ByteLevel") return InvalidArgument("pre_tokenizer.ByteLevel is supported as the last step only");
  }
  return absl::OkStatus();
}

// Post-processor.

absl::Status AddByteLevelProcessor(const Json& json, const std::string& name, TokenizerSpec&) {
  return JsonPart::Open(json, name, {"type", "add_prefix_space", "trim_offsets", "use_regex"}).status();
}

// The ids that a template's special token stands for.
absl::StatusOr<std::vector<uint32_t>> TemplateIds(const JsonPart& part, const Json& special) {
  MOED_ASSIGN_OR_RETURN(const JsonPart use, JsonPart::Open(special, part.name() + ".single.SpecialToken", {"id", "type_id"}));
  MOED_ASSIGN_OR_RETURN(const std::string id, use.String("id"));
  const Json& tokens = part.json("special_tokens");
  if (!tokens.is_object() || !tokens.contains(id)) return InvalidArgument(part.name(), ".special_tokens lacks '", id, "'");
  MOED_ASSIGN_OR_RETURN(const JsonPart token,
                        JsonPart::Open(tokens[id], part.name() + ".special_tokens", {"id", "ids", "tokens"}));
  std::vector<uint32_t> ids;
  for (const Json& number : token.json("ids")) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() >= kNoPiece) return token.Wrong("ids", "a list of token ids");
    ids.push_back(number.get<uint32_t>());
  }
  return ids;
}

absl::Status AddTemplate(const Json& json, const std::string& name, TokenizerSpec& spec) {
  MOED_ASSIGN_OR_RETURN(const JsonPart part, JsonPart::Open(json, name, {"type", "single", "pair", "special_tokens"}));
  std::vector<uint32_t> before, after;
  int sequences = 0;
  for (const Json& item : part.json("single")) {
    if (item.is_object() && item.contains("Sequence")) {
      ++sequences;
    } else if (item.is_object() && item.contains("SpecialToken")) {
      MOED_ASSIGN_OR_RETURN(const auto ids, TemplateIds(part, item["SpecialToken"]));
      auto& side = sequences == 0 ? before : after;
      side.insert(side.end(), ids.begin(), ids.end());
    } else {
      return part.Wrong("single", "a list of SpecialToken and Sequence");
    }
  }
  if (sequences != 1) return part.Wrong("single", "a list with one Sequence");
  spec.prefix_ids.insert(spec.prefix_ids.begin(), before.begin(), before.end());
  spec.suffix_ids.insert(spec.suffix_ids.end(), after.begin(), after.end());
  return absl::OkStatus();
}

constexpr std::array<StepType, 2> kPostProcessors = {{{"ByteLevel", AddByteLevelProcessor}, {"TemplateProcessing", AddTemplate}}};

// Decoder.

absl::Status AddByteLevelDecoder(const Json& json, const std::string& name, TokenizerSpec&) {
  return JsonPart::Open(json, name, {"type", "add_prefix_space", "trim_offsets", "use_regex"}).status();
}

absl::Status AddMetaspaceDecoder(const Json& json, const std::string& name, TokenizerSpec& spec) {
  MOED_ASSIGN_OR_RETURN(const JsonPart part, OpenMetaspace(json, name));
  MOED_ASSIGN_OR_RETURN(const std::string space, ReadCharacter(part, "replacement"));
  MOED_ASSIGN_OR_RETURN(const PrefixRule rule, MetaspacePrefixRule(part));
  if (rule != PrefixRule::kNever) spec.decoder.first_piece_drops = space;
  spec.decoder.replacements.push_back({space, " "});
  return absl::OkStatus();
}

absl::Status AddReplaceDecoder(const Json& json, const std::string& name, TokenizerSpec& spec) {
  MOED_ASSIGN_OR_RETURN(const JsonPart part, JsonPart::Open(json, name, {"type", "pattern", "content"}));
  MOED_ASSIGN_OR_RETURN(PatternText pattern, ReadPattern(part));
  if (!pattern.literal || pattern.text.empty()) return part.Wrong("pattern", R"({"String": text that is not empty})");
  MOED_ASSIGN_OR_RETURN(std::string content, part.String("content"));
  spec.decoder.replacements.push_back({std::move(pattern.text), std::move(content)});
  return absl::OkStatus();
}

absl::Status AddByteFallback(const Json& json, const std::string& name, TokenizerSpec& spec) {
  spec.decoder.byte_fallback = true;
  return JsonPart::Open(json, name, {"type"}).status();
}

absl::Status AddFuse(const Json& json, const std::string& name, TokenizerSpec&) {
  return JsonPart::Open(json, name, {"type"}).status();
}

absl::Status AddStrip(const Json& json, const std::string& name, TokenizerSpec& spec) {
  MOED_ASSIGN_OR_RETURN(const JsonPart part, JsonPart::Open(json, name, {"type", "content", "start", "stop"}));
  MOED_ASSIGN_OR_RETURN(spec.decoder.strip, ReadCharacter(part, "content"));
  MOED_ASSIGN_OR_RETURN(spec.decoder.strip_count, part.Number("start"));
  MOED_ASSIGN_OR_RETURN(const uint32_t stop, part.Number("stop"));
  return stop == 0 ? absl::OkStatus() : part.Wrong("stop", "0");
}

// In the order in which they may follow each other: before Fuse a step sees pieces, after it the text.
constexpr std::array<StepType, 6> kDecoders = {{{"ByteLevel", AddByteLevelDecoder},
                                                {"Metaspace", AddMetaspaceDecoder},
                                                {"Replace", AddReplaceDecoder},
                                                {"ByteFallback", AddByteFallback},
                                                {"Fuse", AddFuse},
                                                {"Strip", AddStrip}}};

absl::Status CheckDecoderOrder(const Json& json, bool byte_level) {
  MOED_ASSIGN_OR_RETURN(const auto steps, FlattenSequence(json, "decoder", "decoders"));
  std::vector<std::string> types;
  for (const Json* step : steps) {
    MOED_ASSIGN_OR_RETURN(types.emplace_back(), TypeOf(*step, "decoder"));
  }
  const std::string shown = types.empty() ? "null" : JoinNames(types, [](const std::string& type) { return type; });
  if (byte_level || shown.find("ByteLevel") != std::string::npos) {
    if (byte_level && shown == "ByteLevel") return absl::OkStatus();
    return InvalidArgument("decoder is ", shown, byte_level ? "" : " without such a pre_tokenizer",
                           "; supported: ByteLevel alone with pre_tokenizer.ByteLevel");
  }
  const auto rank = [](const std::string& type) {
    return std::ranges::find(kDecoders, type, &StepType::type) - kDecoders.begin();
  };
  bool ordered = !types.empty();
  for (size_t i = 0; i < types.size(); ++i) {
    if (i > 0) ordered &= rank(types[i - 1]) < rank(types[i]) || (types[i] == "Replace" && types[i - 1] == "Replace");
    if (types[i] == "Strip") ordered &= i > 0 && types[i - 1] == "Fuse";
  }
  if (ordered) return absl::OkStatus();
  return InvalidArgument("decoder ", shown,
                         " is not supported; supported: ByteLevel, or Metaspace, Replace..., ByteFallback, Fuse and ",
                         "Strip in this order, each optional, Strip after Fuse only");
}

absl::Status CheckPatterns(const TokenizerSpec& spec) {
  if (const auto made = Normalizer::Make(spec.normalizer); !made.ok())
    return InvalidArgument("normalizer: ", made.status().message());
  if (const auto made = PreTokenizer::Make(spec.pre_tokenizer); !made.ok()) {
    return InvalidArgument("pre_tokenizer: ", made.status().message());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CompileSteps(const Json& root, TokenizerSpec& spec) {
  const auto part = [&](const char* key) { return root.value(key, Json()); };
  MOED_RETURN_IF_ERROR(AddSteps(part("normalizer"), "normalizer", "normalizers", kNormalizers, spec));
  MOED_RETURN_IF_ERROR(CheckByteLevelIsLast(part("pre_tokenizer")));
  MOED_RETURN_IF_ERROR(AddSteps(part("pre_tokenizer"), "pre_tokenizer", "pretokenizers", kPreTokenizers, spec));
  MOED_RETURN_IF_ERROR(AddSteps(part("post_processor"), "post_processor", "processors", kPostProcessors, spec));
  MOED_RETURN_IF_ERROR(AddSteps(part("decoder"), "decoder", "decoders", kDecoders, spec));
  MOED_RETURN_IF_ERROR(CheckDecoderOrder(part("decoder"), spec.bpe.byte_level));
  return CheckPatterns(spec);
}

}  // namespace moed
