#include "server/http/anthropic/messages_request.h"

#include <iterator>
#include <utility>

#include "server/http/anthropic/content.h"
#include "server/http/api/answer_parameters.h"

namespace moed::http {
namespace {

using moe::v1::Sampling;
using moe::v1::ToolChoice;

absl::Status ApplyMessages(const Json& value, MessagesDraft& draft) { return ReadAnthropicMessages(value, draft.request); }
absl::Status ApplySystem(const Json& value, MessagesDraft& draft) { return ReadTextOrBlocks(value, draft.system); }
absl::Status ApplyTools(const Json& value, MessagesDraft& draft) { return ReadAnthropicTools(value, draft.request); }

absl::Status ApplyStopSequences(const Json& value, MessagesDraft& draft) { return ReadStopStrings(value, draft.stopping); }

struct ChoiceDraft {
  std::string type;
  std::string name;
  bool one = false;
};
constexpr Parameter<ChoiceDraft> kChoice[] = {{"type", Into<&ChoiceDraft::type>},
                                              {"name", Into<&ChoiceDraft::name>},
                                              {"disable_parallel_tool_use", Into<&ChoiceDraft::one>}};

absl::Status ApplyToolChoice(const Json& value, MessagesDraft& draft) {
  constexpr std::pair<std::string_view, ToolChoice::Kind> kKinds[] = {
      {"auto", ToolChoice::AUTO}, {"any", ToolChoice::REQUIRED}, {"tool", ToolChoice::FUNCTION}, {"none", ToolChoice::NONE}};
  ChoiceDraft choice;
  MOED_RETURN_IF_ERROR(ReadMembers(value, kChoice, choice));
  ToolChoice& out = *draft.request.mutable_tool_choice();
  for (const auto& [name, kind] : kKinds) {
    if (choice.type == name) out.set_kind(kind);
  }
  if (out.kind() == ToolChoice::KIND_UNSPECIFIED) return InvalidArgument(".type: allowed are auto, any, tool and none");
  out.set_name(std::move(choice.name));
  out.set_at_most_one(choice.one);
  return absl::OkStatus();
}

// Templates call it one or the other. How long a model reasons is its own matter: budgets are not held.
absl::Status ApplyThinking(const Json& value, MessagesDraft& draft) {
  struct Thinking {
    std::string type;
  } thinking;
  constexpr Parameter<Thinking> kThinking[] = {{"type",
                                                [](const Json& type, Thinking& out) -> absl::Status {
                                                  MOED_ASSIGN_OR_RETURN(out.type, StringOf(type));
                                                  return absl::OkStatus();
                                                }},
                                               {"budget_tokens", nullptr},
                                               {"display", nullptr}};
  MOED_RETURN_IF_ERROR(ReadMembers(value, kThinking, thinking));
  if (thinking.type == "adaptive") return absl::OkStatus();
  const bool on = thinking.type == "enabled";
  if (!on && thinking.type != "disabled") return InvalidArgument(".type: allowed are enabled, disabled and adaptive");
  draft.template_variables["enable_thinking"] = on;
  draft.template_variables["thinking"] = on;
  return absl::OkStatus();
}

struct OutputDraft {
  std::string schema;
};
absl::Status ApplyOutputType(const Json& value, OutputDraft&) { return OnlyValue(value, "json_schema", "answers are texts"); }
absl::Status ApplyOutputSchema(const Json& value, OutputDraft& draft) {
  if (!value.is_object()) return InvalidArgument(ShownJson(value), " is no JSON schema, which is an object");
  draft.schema = value.dump();
  return absl::OkStatus();
}
constexpr Parameter<OutputDraft> kOutputFormat[] = {{"type", ApplyOutputType}, {"schema", ApplyOutputSchema}};

// The first is the name that it had in Anthropic's beta.
constexpr std::string_view kBetaFormat = "output_format", kConfigFormat = "output_config.format";
template <const std::string_view& kParameter>
absl::Status ApplyOutputFormat(const Json& value, MessagesDraft& draft) {
  OutputDraft format;
  MOED_RETURN_IF_ERROR(ReadMembers(value, kOutputFormat, format));
  if (format.schema.empty()) return InvalidArgument(".schema: missing");
  if (!draft.format_parameter.empty()) return InvalidArgument("the same as ", draft.format_parameter, ": give one of them");
  draft.format.set_json_schema(std::move(format.schema));
  draft.format_parameter = kParameter;
  return absl::OkStatus();
}
absl::Status ApplyEffort(const Json& value, MessagesDraft& draft) { return ReadReasoningEffort(value, draft); }
constexpr Parameter<MessagesDraft> kOutput[] = {{"format", ApplyOutputFormat<kConfigFormat>}, {"effort", ApplyEffort}};
absl::Status ApplyOutputConfig(const Json& value, MessagesDraft& draft) { return ReadMembers(value, kOutput, draft); }

absl::Status ApplyTemplateVariables(const Json& value, MessagesDraft& draft) { return ReadTemplateVariables(value, draft); }

absl::Status ApplyPriority(const Json& value, MessagesDraft& draft) {
  MOED_ASSIGN_OR_RETURN(draft.priority, PriorityOf(value));
  return absl::OkStatus();
}

absl::Status ApplySpeed(const Json& value, MessagesDraft&) { return OnlyValue(value, "standard", "there is one speed"); }

// Edits of a conversation that keep all of it.
struct EditDraft {};
absl::Status ApplyEditType(const Json& value, EditDraft&) {
  return OnlyValue(value, "clear_thinking_20251015", "conversations are not edited");
}
absl::Status ApplyEditKeep(const Json& value, EditDraft&) {
  const bool all = value == "all" || value == Json{{"type", "all"}};
  return all ? absl::OkStatus() : OnlyValue(value, "all", "conversations are not edited");
}
constexpr Parameter<EditDraft> kEdit[] = {{"type", ApplyEditType}, {"keep", ApplyEditKeep}};
absl::Status ApplyEdits(const Json& value, MessagesDraft&) {
  return ReadElements(value, [](const Json& element) -> absl::Status {
    EditDraft edit;
    MOED_RETURN_IF_ERROR(ReadMembers(element, kEdit, edit));
    for (const char* needed : {"type", "keep"}) {
      if (!HasMember(element, needed)) return InvalidArgument(".", needed, ": missing");
    }
    return absl::OkStatus();
  });
}
constexpr Parameter<MessagesDraft> kContextManagement[] = {{"edits", ApplyEdits}};
absl::Status ApplyContextManagement(const Json& value, MessagesDraft& draft) {
  return ReadMembers(value, kContextManagement, draft);
}

absl::Status NotOffered(const Json& value, MessagesDraft&) { return OnlyValue(value, nullptr, "not offered"); }

constexpr Parameter<MessagesDraft> kParameters[] = {
    {"model", Into<&MessagesDraft::model>},
    {"messages", ApplyMessages},
    {"system", ApplySystem},
    {"max_tokens", Into<&MessagesDraft::stopping, &moe::v1::Stopping::set_max_new_tokens>},
    {"stop_sequences", ApplyStopSequences},
    {"stream", Into<&MessagesDraft::stream>},
    {"temperature", Into<&MessagesDraft::sampling, &Sampling::set_temperature>},
    {"top_p", Into<&MessagesDraft::sampling, &Sampling::set_top_p>},
    {"top_k", Into<&MessagesDraft::sampling, &moe::v1::Sampling::set_top_k>},
    {"tools", ApplyTools},
    {"tool_choice", ApplyToolChoice},
    {"thinking", ApplyThinking},
    {"output_config", ApplyOutputConfig},
    {kBetaFormat, ApplyOutputFormat<kBetaFormat>},
    {"metadata", nullptr},
    {"service_tier", nullptr},
    {"cache_control", nullptr},
    {"container", NotOffered},
    {"context_management", ApplyContextManagement},
    {"speed", ApplySpeed},
    {"inference_geo", nullptr},
    {"diagnostics", nullptr},
    {"mcp_servers", NotOffered},
    {"chat_template_kwargs", ApplyTemplateVariables},  // vLLM's name
    {"priority", ApplyPriority},                       // the daemon's own
};

constexpr FieldName kFieldNames[] = {
    {"max_new_tokens", "max_tokens"}, {"stop_strings", "stop_sequences"},       {"template_variables", "chat_template_kwargs"},
    {"kind", "tool_choice.type"},     {"tool_choice.name", "tool_choice.name"},
};

absl::StatusOr<MessagesDraft> Read(const std::string& body) {
  MOED_ASSIGN_OR_RETURN(const Json json, ParseJson(body));
  MessagesDraft draft;
  const std::span<const Parameter<AnswerOptions>> nothing_else;
  MOED_RETURN_IF_ERROR(ReadParameters(json, MessagesParameters(), nothing_else, draft));
  auto& messages = *draft.request.mutable_messages();
  if (messages.empty()) return InvalidArgument("messages: missing or empty");
  if (!draft.system.empty()) BeginWithSystem(std::move(draft.system), messages);
  SetTemplateVariables(draft);
  return draft;
}

}  // namespace

std::span<const Parameter<MessagesDraft>> MessagesParameters() { return kParameters; }
std::vector<FieldName> MessagesFieldNames(const MessagesDraft& draft) {
  const bool beta = draft.format_parameter == kBetaFormat;
  std::vector<FieldName> names(std::begin(kFieldNames), std::end(kFieldNames));
  names.push_back({"format", beta ? kBetaFormat : kConfigFormat});
  names.push_back({"json_schema", beta ? "output_format.schema" : "output_config.format.schema"});
  return names;
}

absl::StatusOr<MessagesDraft> ReadMessagesRequest(const std::string& body) {
  MOED_ASSIGN_OR_RETURN(MessagesDraft draft, Read(body));
  if (draft.request.messages().rbegin()->role() == "assistant")
    return InvalidArgument("messages: the last is the assistant's; answers that are begun are not gone on with");
  if (!draft.stopping.has_max_new_tokens()) return InvalidArgument("max_tokens: missing");
  return draft;
}

absl::StatusOr<MessagesDraft> ReadCountRequest(const std::string& body) { return Read(body); }

}  // namespace moed::http
