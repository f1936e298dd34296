#include "server/http/openai/chat_request.h"

#include <iterator>

#include "server/http/openai/common_parameters.h"
#include "server/http/openai/messages.h"
#include "server/http/openai/text_format.h"

namespace moed::http {
namespace {

absl::Status ApplyMessages(const Json& value, ChatDraft& draft) { return ReadMessages(value, draft.request); }
absl::Status ApplyTools(const Json& value, ChatDraft& draft) { return ReadTools(value, Layout::kNested, draft.request); }
absl::Status ApplyToolChoice(const Json& value, ChatDraft& draft) {
  return ReadToolChoice(value, Layout::kNested, *draft.request.mutable_tool_choice(), draft.allowed_tools);
}

absl::Status ApplyReasoningEffort(const Json& value, ChatDraft& draft) { return ReadReasoningEffort(value, draft); }
absl::Status ApplyModalities(const Json& value, ChatDraft&) {
  return OnlyValue(value, Json::array({"text"}), "answers are texts");
}
absl::Status NotOffered(const Json& value, ChatDraft&) { return OnlyValue(value, nullptr, "not offered"); }
absl::Status UseTools(const Json& value, ChatDraft&) { return OnlyValue(value, nullptr, "use tools and tool_choice"); }
absl::Status ApplyFunctions(const Json& value, ChatDraft& draft) {
  return value == Json::array() ? absl::OkStatus() : UseTools(value, draft);
}
absl::Status ApplyVerbosity(const Json& value, ChatDraft&) {
  return OnlyValue(value, "medium", "how long answers are is the model's matter");
}
absl::Status ApplyBestOf(const Json& value, ChatDraft&) { return OnlyValue(value, 1, "all answers that are computed are given"); }
absl::Status ApplyAddGenerationPrompt(const Json& value, ChatDraft&) {
  return OnlyValue(value, true, "an answer is a message of its own");
}
absl::Status ApplyContinueFinalMessage(const Json& value, ChatDraft&) {
  return OnlyValue(value, false, "an answer is a message of its own");
}

constexpr Parameter<ChatDraft> kParameters[] = {
    {"messages", ApplyMessages},
    {"tools", ApplyTools},
    {"tool_choice", ApplyToolChoice},
    {"logprobs", Into<&ChatDraft::response, &moe::v1::ResponseOptions::set_logprobs>},
    {"reasoning_effort", ApplyReasoningEffort},
    {"modalities", ApplyModalities},
    {"audio", NotOffered},
    {"prediction", NotOffered},
    {"web_search_options", NotOffered},
    {"verbosity", ApplyVerbosity},
    {"functions", ApplyFunctions},
    {"function_call", UseTools},
    {"best_of", ApplyBestOf},  // these three are vLLM's
    {"add_generation_prompt", ApplyAddGenerationPrompt},
    {"continue_final_message", ApplyContinueFinalMessage},
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
    {"kind", "tool_choice"},
    {"tool_choice.name", "tool_choice.function.name"},
    {"at_most_one", "parallel_tool_calls"},
};

}  // namespace

std::span<const Parameter<ChatDraft>> ChatParameters() { return kParameters; }
std::vector<FieldName> ChatFieldNames(const ChatDraft& draft) {
  std::vector<FieldName> names = TextFormatNames(draft);
  names.insert(names.end(), std::begin(kFieldNames), std::end(kFieldNames));
  names.push_back({"max_new_tokens", LengthName(draft)});
  return names;
}

std::string ChatFieldPlace(std::string_view path) {
  constexpr std::string_view kEndOfIndex = "].";
  const size_t end = path.rfind(kEndOfIndex);
  const bool of_function = path.starts_with("tools[") || path.find(".tool_calls[") != std::string_view::npos;
  if (!of_function || end == std::string_view::npos) return "";
  const std::string_view member = path.substr(end + kEndOfIndex.size());
  return member == "id" ? "" : StrCat(path.substr(0, end), kEndOfIndex, "function.", member);
}

absl::StatusOr<ChatDraft> ReadChat(const std::string& body) {
  MOED_ASSIGN_OR_RETURN(const Json json, ParseJson(body));
  ChatDraft draft;
  MOED_RETURN_IF_ERROR(ReadParameters(json, ChatParameters(), ConversationParameters(), CommonParameters(), draft));
  if (draft.request.messages().empty()) return InvalidArgument("messages: missing or empty");
  MOED_RETURN_IF_ERROR(CheckChoices(draft, 1));
  if (draft.response.top_logprobs() > 0 && !draft.response.logprobs())
    return InvalidArgument("top_logprobs: needs logprobs: true");
  MOED_RETURN_IF_ERROR(FinishConversation(Layout::kNested, draft));
  return draft;
}

}  // namespace moed::http
