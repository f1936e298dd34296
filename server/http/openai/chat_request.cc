#include "server/http/openai/chat_request.h"

#include <iterator>

#include "server/http/openai/common_parameters.h"
#include "server/http/openai/messages.h"

namespace moed::http {
namespace {

absl::Status ApplyMessages(const Json& value, ChatDraft& draft) { return ReadMessages(value, draft.request); }
absl::Status ApplyTools(const Json& value, ChatDraft& draft) { return ReadTools(value, draft.request); }
absl::Status ApplyToolChoice(const Json& value, ChatDraft& draft) {
  return ReadToolChoice(value, *draft.request.mutable_tool_choice(), draft.allowed_tools);
}

// Of two names for one thing.
absl::Status ApplyMaxTokens(const Json& value, ChatDraft& draft) {
  if (draft.stopping.has_max_new_tokens()) return InvalidArgument("max_tokens and max_completion_tokens are one thing: give one");
  MOED_ASSIGN_OR_RETURN(const int32_t tokens, Int32Of(value));
  draft.stopping.set_max_new_tokens(tokens);
  return absl::OkStatus();
}
absl::Status ApplyOldMaxTokens(const Json& value, ChatDraft& draft) {
  MOED_RETURN_IF_ERROR(ApplyMaxTokens(value, draft));
  draft.max_tokens_name = "max_tokens";
  return absl::OkStatus();
}

absl::Status ApplyLogprobs(const Json& value, ChatDraft& draft) {
  MOED_ASSIGN_OR_RETURN(const bool logprobs, BoolOf(value));
  draft.response.set_logprobs(logprobs);
  return absl::OkStatus();
}

absl::Status ApplyTopLogprobs(const Json& value, ChatDraft& draft) {
  MOED_ASSIGN_OR_RETURN(const int32_t alternatives, Int32Of(value));
  draft.response.set_top_logprobs(alternatives);
  return absl::OkStatus();
}

absl::Status ApplyTemplateVariables(const Json& value, ChatDraft& draft) {
  if (!value.is_object()) return InvalidArgument(ShownJson(value), " is no object");
  draft.template_variables.update(value);
  return absl::OkStatus();
}

// gpt-oss' template has a variable of this name; others do not look at it.
absl::Status ApplyReasoningEffort(const Json& value, ChatDraft& draft) {
  MOED_ASSIGN_OR_RETURN(draft.template_variables["reasoning_effort"], StringOf(value));
  return absl::OkStatus();
}

// {"name": "...", "schema": {...}, "strict": true}; the name and the description are for OpenAI's models.
struct SchemaDraft {
  std::string text;
};
absl::Status ApplySchema(const Json& value, SchemaDraft& draft) {
  if (!value.is_object()) return InvalidArgument(ShownJson(value), " is no JSON schema, which is an object");
  draft.text = value.dump();
  return absl::OkStatus();
}
absl::Status ApplySchemaStrict(const Json& value, SchemaDraft&) {
  return BoolOf(value).status();
}  // answers are always held to it
constexpr Parameter<SchemaDraft> kSchema[] = {
    {"name", nullptr}, {"description", nullptr}, {"schema", ApplySchema}, {"strict", ApplySchemaStrict}};

struct FormatDraft {
  std::string type;
  SchemaDraft schema;
};
absl::Status ApplyFormatType(const Json& value, FormatDraft& draft) {
  MOED_ASSIGN_OR_RETURN(draft.type, StringOf(value));
  return absl::OkStatus();
}
absl::Status ApplyJsonSchema(const Json& value, FormatDraft& draft) { return ReadMembers(value, kSchema, draft.schema); }
constexpr Parameter<FormatDraft> kFormat[] = {{"type", ApplyFormatType}, {"json_schema", ApplyJsonSchema}};

absl::Status ApplyResponseFormat(const Json& value, ChatDraft& draft) {
  FormatDraft format;
  MOED_RETURN_IF_ERROR(ReadMembers(value, kFormat, format));
  if (format.type == "json_object") {
    draft.request.mutable_format()->set_json_object(true);
  } else if (format.type == "json_schema") {
    if (format.schema.text.empty()) return InvalidArgument(".json_schema.schema: missing");
    draft.request.mutable_format()->set_json_schema(std::move(format.schema.text));
  } else if (format.type != "text") {
    return InvalidArgument(".type: allowed are text, json_object and json_schema");
  }
  return absl::OkStatus();
}
absl::Status ApplyParallelToolCalls(const Json& value, ChatDraft& draft) {
  MOED_ASSIGN_OR_RETURN(const bool parallel, BoolOf(value));
  draft.parallel_tool_calls = parallel;
  return absl::OkStatus();
}
absl::Status ApplyModalities(const Json& value, ChatDraft&) {
  return OnlyValue(value, Json::array({"text"}), "answers are texts");
}
absl::Status ApplyStore(const Json& value, ChatDraft&) { return OnlyValue(value, false, "nothing is stored"); }
absl::Status ApplyServiceTier(const Json& value, ChatDraft&) {
  if (value == "auto" || value == "default") return absl::OkStatus();
  return InvalidArgument("there are no tiers; the values that are taken are \"auto\" and \"default\"");
}
absl::Status NotOffered(const Json& value, ChatDraft&) { return OnlyValue(value, nullptr, "not offered"); }
absl::Status UseTools(const Json& value, ChatDraft&) { return OnlyValue(value, nullptr, "use tools and tool_choice"); }

constexpr Parameter<ChatDraft> kParameters[] = {
    {"messages", ApplyMessages},
    {"tools", ApplyTools},
    {"tool_choice", ApplyToolChoice},
    {"max_completion_tokens", ApplyMaxTokens},
    {"max_tokens", ApplyOldMaxTokens},
    {"logprobs", ApplyLogprobs},
    {"top_logprobs", ApplyTopLogprobs},
    {"reasoning_effort", ApplyReasoningEffort},
    {"chat_template_kwargs", ApplyTemplateVariables},  // vLLM's name
    {"response_format", ApplyResponseFormat},
    {"parallel_tool_calls", ApplyParallelToolCalls},
    {"modalities", ApplyModalities},
    {"store", ApplyStore},
    {"service_tier", ApplyServiceTier},
    {"audio", NotOffered},
    {"prediction", NotOffered},
    {"web_search_options", NotOffered},
    {"verbosity", NotOffered},
    {"functions", UseTools},
    {"function_call", UseTools},
    {"metadata", nullptr},
    {"safety_identifier", nullptr},
    {"prompt_cache_key", nullptr},
    {"prompt_cache_retention", nullptr},
};

constexpr FieldName kFieldNames[] = {
    {"min_new_tokens", "min_tokens"},
    {"stop_strings", "stop"},
    {"include_stop_string", "include_stop_str_in_output"},
    {"template_variables", "chat_template_kwargs"},
    {"format", "response_format"},
    {"kind", "tool_choice"},
    {"name", "tool_choice.function.name"},
    {"at_most_one", "parallel_tool_calls"},
    {"json_schema", "response_format.json_schema"},
};

}  // namespace

std::span<const Parameter<ChatDraft>> ChatParameters() { return kParameters; }
std::vector<FieldName> ChatFieldNames(const ChatDraft& draft) {
  std::vector<FieldName> names(std::begin(kFieldNames), std::end(kFieldNames));
  names.push_back({"max_new_tokens", draft.max_tokens_name});
  return names;
}

absl::StatusOr<ChatDraft> ReadChat(const std::string& body) {
  MOED_ASSIGN_OR_RETURN(const Json json, ParseJson(body));
  ChatDraft draft;
  MOED_RETURN_IF_ERROR(ReadParameters(json, ChatParameters(), CommonParameters(), draft));
  if (draft.request.messages().empty()) return InvalidArgument("messages: missing or empty");
  MOED_RETURN_IF_ERROR(CheckChoices(draft, 1));
  if (draft.allowed_tools) MOED_RETURN_IF_ERROR(KeepAllowedTools(*draft.allowed_tools, draft.request));
  if (draft.response.top_logprobs() > 0 && !draft.response.logprobs())
    return InvalidArgument("top_logprobs: needs logprobs: true");
  if (!draft.parallel_tool_calls) draft.request.mutable_tool_choice()->set_at_most_one(true);
  if (!draft.template_variables.empty()) draft.request.set_template_variables(draft.template_variables.dump());
  return draft;
}

}  // namespace moed::http
