#include "server/http/responses/responses_request.h"

#include <utility>

#include "core/base/status.h"
#include "server/http/api/answer_parameters.h"
#include "server/http/openai/text_format.h"

namespace moed::http {
namespace {

constexpr Parameter<ResponsesDraft> kStreamOptions[] = {{"include_obfuscation", nullptr}};
absl::Status ApplyStreamOptions(const Json& value, ResponsesDraft& draft) { return ReadMembers(value, kStreamOptions, draft); }

absl::Status ApplyInput(const Json& value, ResponsesDraft& draft) { return draft.input.Read(value); }
absl::Status ApplyTools(const Json& value, ResponsesDraft& draft) { return ReadTools(value, Layout::kFlat, draft.request); }
absl::Status ApplyToolChoice(const Json& value, ResponsesDraft& draft) {
  return ReadToolChoice(value, Layout::kFlat, *draft.request.mutable_tool_choice(), draft.allowed_tools);
}

absl::Status ApplyTextFormat(const Json& value, ResponsesDraft& draft) {
  return ReadTextFormat(value, Layout::kFlat, draft.format);
}
absl::Status ApplyVerbosity(const Json& value, ResponsesDraft&) {
  return OnlyValue(value, "medium", "how much a model says is its own matter");
}
constexpr Parameter<ResponsesDraft> kText[] = {{"format", ApplyTextFormat}, {"verbosity", ApplyVerbosity}};
absl::Status ApplyText(const Json& value, ResponsesDraft& draft) { return ReadMembers(value, kText, draft); }

// "auto" is the best that there is of a model, which here is none.
absl::Status ApplyEffort(const Json& value, ResponsesDraft& draft) { return ReadReasoningEffort(value, draft); }
absl::Status ApplySummary(const Json& value, ResponsesDraft&) {
  return OnlyValue(value, "auto", "reasoning is not summarized, and is whole in the items of an answer");
}
absl::Status ApplyReasoningContext(const Json& value, ResponsesDraft&) {
  return OnlyValue(value, "auto", "the model's template chooses what it shows of earlier reasoning");
}
absl::Status ApplyReasoningMode(const Json& value, ResponsesDraft&) { return OnlyValue(value, "standard", "there is one mode"); }
constexpr Parameter<ResponsesDraft> kReasoning[] = {{"effort", ApplyEffort},
                                                    {"summary", ApplySummary},
                                                    {"generate_summary", ApplySummary},
                                                    {"context", ApplyReasoningContext},
                                                    {"mode", ApplyReasoningMode}};
absl::Status ApplyReasoning(const Json& value, ResponsesDraft& draft) { return ReadMembers(value, kReasoning, draft); }

// Reasoning hides nothing: who asks for it encrypted, to send it back, has it in the item's content.
absl::Status ApplyInclude(const Json& value, ResponsesDraft& draft) {
  return ReadElements(value, [&](const Json& element) -> absl::Status {
    if (element == "message.output_text.logprobs") {
      draft.response.set_logprobs(true);
    } else if (element != "reasoning.encrypted_content") {
      return InvalidArgument(ShownJson(element), " is not offered; there are: message.output_text.logprobs and ",
                             "reasoning.encrypted_content");
    }
    return absl::OkStatus();
  });
}

absl::Status ApplyMetadata(const Json& value, ResponsesDraft&) {
  if (!value.is_object()) return InvalidArgument(ShownJson(value), " is no object");
  for (const auto& [name, text] : value.items()) {
    if (!text.is_string()) return InvalidArgument(".", name.substr(0, 64), ": ", ShownJson(text), " is no string");
  }
  return absl::OkStatus();
}
absl::Status CheckString(const Json& value, ResponsesDraft&) { return StringOf(value).status(); }

constexpr std::string_view kNothingIsKept = "nothing is kept of answers; send the whole conversation as input";
absl::Status RefusePrevious(const Json& value, ResponsesDraft&) { return OnlyValue(value, nullptr, kNothingIsKept); }
absl::Status ApplyBackground(const Json& value, ResponsesDraft&) { return OnlyValue(value, false, kNothingIsKept); }
absl::Status ApplyTruncation(const Json& value, ResponsesDraft&) {
  return OnlyValue(value, "disabled", "conversations are not shortened");
}
absl::Status NotOffered(const Json& value, ResponsesDraft&) { return OnlyValue(value, nullptr, "not offered"); }

constexpr Parameter<ResponsesDraft> kParameters[] = {
    {"model", Into<&ResponsesDraft::model>},
    {"input", ApplyInput},
    {"instructions", Into<&ResponsesDraft::instructions>},
    {"stream", Into<&ResponsesDraft::stream>},
    {"stream_options", ApplyStreamOptions},
    {"max_output_tokens", Into<&ResponsesDraft::stopping, &moe::v1::Stopping::set_max_new_tokens>},
    {"tools", ApplyTools},
    {"tool_choice", ApplyToolChoice},
    {"text", ApplyText},
    {"reasoning", ApplyReasoning},
    {"include", ApplyInclude},
    {"truncation", ApplyTruncation},
    {"background", ApplyBackground},
    {"previous_response_id", RefusePrevious},
    {"conversation", RefusePrevious},
    {"prompt", NotOffered},
    {"context_management", NotOffered},
    {"moderation", NotOffered},
    {"metadata", ApplyMetadata},
    {"user", CheckString},
    {"safety_identifier", CheckString},
    {"prompt_cache_key", CheckString},
    {"prompt_cache_retention", nullptr},
    {"max_tool_calls", nullptr},   // of a server's own tools
    {"client_metadata", nullptr},  // Codex'
};

constexpr FieldName kFieldNames[] = {
    {"messages", "input"},
    {"messages.content", "input.content"},
    {"messages.content.text", "input.content.text"},
    {"messages.tool_calls", "input"},
    {"messages.tool_calls.id", "input.call_id"},
    {"messages.tool_calls.name", "input.name"},
    {"messages.tool_calls.arguments", "input.arguments"},
    {"messages.tool_call_id", "input.call_id"},
    {"messages.name", "input.name"},
    {"tools.name", "tools.name"},
    {"tools.description", "tools.description"},
    {"tools.parameters", "tools.parameters"},
    {"max_new_tokens", "max_output_tokens"},
    {"min_new_tokens", "min_tokens"},
    {"stop_strings", "stop"},
    {"include_stop_string", "include_stop_str_in_output"},
    {"template_variables", "chat_template_kwargs"},
    {"format", "text.format"},
    {"json_schema", "text.format.schema"},
    {"kind", "tool_choice"},
    {"tool_choice.name", "tool_choice.name"},
    {"at_most_one", "parallel_tool_calls"},
};

// What clients expect to find in every answer, and what stands there where the request says nothing.
struct EchoRow {
  std::string_view name;
  std::string_view otherwise;  // JSON
};
constexpr EchoRow kEcho[] = {
    {"background", "false"},
    {"instructions", "null"},
    {"max_output_tokens", "null"},
    {"max_tool_calls", "null"},
    {"metadata", "{}"},
    {"parallel_tool_calls", "true"},
    {"previous_response_id", "null"},
    {"prompt_cache_key", "null"},
    {"reasoning", R"({"effort":null,"summary":null})"},
    {"safety_identifier", "null"},
    {"store", "false"},
    {"temperature", "null"},
    {"text", "null"},  // there always is one, see AddMembers
    {"tool_choice", R"("auto")"},
    {"tools", "[]"},
    {"top_logprobs", "0"},
    {"top_p", "null"},
    {"truncation", R"("disabled")"},
    {"user", "null"},
};

// Clients read members that a request may leave out.
void AddMembers(Json& body) {
  Json& text = body["text"];
  if (text.is_null()) text = Json::object();
  if (!HasMember(text, "format")) text["format"] = {{"type", "text"}};
  if (!HasMember(body, "tools")) return;
  for (Json& tool : body["tools"]) {
    if (!HasMember(tool, "type")) tool["type"] = "function";
    if (!HasMember(tool, "parameters")) tool["parameters"] = nullptr;
    if (!HasMember(tool, "strict")) tool["strict"] = false;
  }
}

// Of a body that was read. As a text it takes about what the body did.
std::string EchoOf(Json body) {
  AddMembers(body);
  std::string echo = R"("service_tier":"default")";
  for (const EchoRow& row : kEcho) {
    const bool given = HasMember(body, row.name);
    echo += StrCat(",\"", row.name, "\":", given ? Dumped(body[row.name]) : std::string(row.otherwise));
  }
  return echo;
}

}  // namespace

std::span<const Parameter<ResponsesDraft>> ResponsesParameters() { return kParameters; }
std::span<const FieldName> ResponsesFieldNames() { return kFieldNames; }

absl::StatusOr<ResponsesDraft> ReadResponses(const std::string& body) {
  MOED_ASSIGN_OR_RETURN(Json json, ParseJson(body));
  ResponsesDraft draft;
  MOED_RETURN_IF_ERROR(ReadParameters(json, ResponsesParameters(), ConversationParameters(), AnswerParameters(), draft));
  if (draft.input.empty()) return InvalidArgument("input: missing or empty");
  if (!draft.instructions.empty()) draft.input.Instruct(std::move(draft.instructions));
  *draft.request.mutable_messages() = draft.input.TakeMessages();
  if (draft.response.top_logprobs() > 0 && !draft.response.logprobs())
    return InvalidArgument("top_logprobs: needs include: [\"message.output_text.logprobs\"]");
  MOED_RETURN_IF_ERROR(FinishConversation(Layout::kFlat, draft));
  draft.echo = EchoOf(std::move(json));
  return draft;
}

}  // namespace moed::http
