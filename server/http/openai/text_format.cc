#include "server/http/openai/text_format.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "core/base/status.h"

namespace moed::http {
namespace {

using moe::v1::OutputFormat;

// The name and the description are for OpenAI's models.
struct FormatDraft {
  std::string type;
  std::string schema;
};
absl::Status ApplySchema(const Json& value, FormatDraft& draft) {
  if (!value.is_object()) return InvalidArgument(ShownJson(value), " is no JSON schema, which is an object");
  if (!draft.schema.empty()) return InvalidArgument("there is a schema already");
  draft.schema = value.dump();
  return absl::OkStatus();
}
absl::Status ApplySchemaStrict(const Json& value, FormatDraft&) {
  return BoolOf(value).status();
}  // answers are always held to it
constexpr Parameter<FormatDraft> kSchema[] = {
    {"name", nullptr}, {"description", nullptr}, {"schema", ApplySchema}, {"strict", ApplySchemaStrict}};
absl::Status ApplyJsonSchema(const Json& value, FormatDraft& draft) { return ReadMembers(value, kSchema, draft); }
constexpr Parameter<FormatDraft> kNestedFormat[] = {{"type", Into<&FormatDraft::type>},
                                                    {"json_schema", ApplyJsonSchema},
                                                    {"schema", ApplySchema}};  // the last as Fireworks has it
constexpr Parameter<FormatDraft> kFlatFormat[] = {
    {"type", Into<&FormatDraft::type>}, kSchema[0], kSchema[1], kSchema[2], kSchema[3]};

absl::Status ReadNestedFormat(const Json& value, OutputFormat& format) { return ReadTextFormat(value, Layout::kNested, format); }

absl::Status ReadRegex(const Json& value, OutputFormat& format) { return Into<&OutputFormat::mutable_regex>(value, format); }

absl::Status ReadSchema(const Json& value, OutputFormat& format) {
  if (!value.is_object() && !value.is_string()) {
    return InvalidArgument(ShownJson(value), " is no JSON schema, which is an object or the text of one");
  }
  format.set_json_schema(value.is_string() ? value.get<std::string>() : value.dump());
  return absl::OkStatus();
}

absl::Status ReadJsonObject(const Json& value, OutputFormat& format) {
  MOED_RETURN_IF_ERROR(OnlyValue(value, true, "false would say nothing"));
  format.set_json_object(true);
  return absl::OkStatus();
}

// What matches `text` alone, as core/grammar/regex.h reads it.
std::string Escaped(std::string_view text) {
  std::string regex;
  for (const char c : text) {
    if (absl::ascii_ispunct(static_cast<unsigned char>(c))) regex += '\\';
    regex += c;
  }
  return regex;
}

absl::Status ReadChoice(const Json& value, OutputFormat& format) {
  std::string regex;
  MOED_RETURN_IF_ERROR(ReadElements(value, [&](const Json& element) -> absl::Status {
    MOED_ASSIGN_OR_RETURN(const std::string choice, StringOf(element));
    if (choice.empty()) return InvalidArgument("empty, an answer has one token at least");
    regex += StrCat(regex.empty() ? "" : "|", Escaped(choice));
    return absl::OkStatus();
  }));
  if (regex.empty()) return InvalidArgument("empty, one string at least is wanted");
  format.set_regex(std::move(regex));
  return absl::OkStatus();
}

constexpr std::string_view kResponseFormat = "response_format", kResponseSchema = "response_format.schema",
                           kGuidedRegex = "guided_regex", kGuidedChoice = "guided_choice", kGuidedJson = "guided_json",
                           kRegex = "structured_outputs.regex", kChoice = "structured_outputs.choice",
                           kJson = "structured_outputs.json", kJsonObject = "structured_outputs.json_object";

template <const std::string_view& kParameter, absl::Status (*kRead)(const Json& value, OutputFormat& format)>
absl::Status Apply(const Json& value, AnswerOptions& options) {
  OutputFormat format;
  MOED_RETURN_IF_ERROR(kRead(value, format));
  if (format.kind_case() == OutputFormat::KIND_NOT_SET) return absl::OkStatus();
  if (!options.format_parameter.empty()) {
    return InvalidArgument("an answer is held to one thing, which ", options.format_parameter, " says already");
  }
  options.format = std::move(format);
  options.format_parameter = kParameter;
  return absl::OkStatus();
}

absl::Status ApplyResponseFormat(const Json& value, AnswerOptions& options) {
  const bool has_schema = value.is_object() && HasMember(value, "schema");
  return has_schema ? Apply<kResponseSchema, ReadNestedFormat>(value, options)
                    : Apply<kResponseFormat, ReadNestedFormat>(value, options);
}

constexpr Parameter<AnswerOptions> kStructuredOutputs[] = {{"regex", Apply<kRegex, ReadRegex>},
                                                           {"choice", Apply<kChoice, ReadChoice>},
                                                           {"json", Apply<kJson, ReadSchema>},
                                                           {"json_object", Apply<kJsonObject, ReadJsonObject>}};
absl::Status ApplyStructuredOutputs(const Json& value, AnswerOptions& options) {
  MOED_RETURN_IF_ERROR(ReadMembers(value, kStructuredOutputs, options));
  if (std::ranges::any_of(kStructuredOutputs, [&](const auto& row) { return HasMember(value, row.name); }))
    return absl::OkStatus();
  return InvalidArgument("says nothing; wanted is one of ",
                         JoinNames(kStructuredOutputs, [](const auto& row) { return row.name; }));
}

constexpr Parameter<AnswerOptions> kParameters[] = {
    {kResponseFormat, ApplyResponseFormat},
    // vLLM's, and what they were before.
    {"structured_outputs", ApplyStructuredOutputs},
    {kGuidedRegex, Apply<kGuidedRegex, ReadRegex>},
    {kGuidedChoice, Apply<kGuidedChoice, ReadChoice>},
    {kGuidedJson, Apply<kGuidedJson, ReadSchema>},
};

}  // namespace

absl::Status ReadTextFormat(const Json& value, Layout layout, OutputFormat& format) {
  const bool nested = layout == Layout::kNested;
  FormatDraft draft;
  MOED_RETURN_IF_ERROR(nested ? ReadMembers(value, kNestedFormat, draft) : ReadMembers(value, kFlatFormat, draft));
  const bool holds = draft.type == "json_object" || draft.type == "json_schema";
  if (holds && !draft.schema.empty()) {
    format.set_json_schema(std::move(draft.schema));
  } else if (draft.type == "json_object") {
    format.set_json_object(true);
  } else if (draft.type == "json_schema") {
    return InvalidArgument(nested ? ".json_schema.schema" : ".schema", ": missing");
  } else if (draft.type != "text") {
    return InvalidArgument(".type: allowed are text, json_object and json_schema");
  }
  return absl::OkStatus();
}

std::span<const Parameter<AnswerOptions>> TextFormatParameters() { return kParameters; }

std::vector<FieldName> TextFormatNames(const AnswerOptions& options) {
  const std::string_view said = options.format_parameter.empty() ? kResponseFormat : options.format_parameter;
  return {{"format", said},
          {"json_object", said},
          {"regex", said},
          {"json_schema", said == kResponseFormat ? "response_format.json_schema" : said}};
}

}  // namespace moed::http
