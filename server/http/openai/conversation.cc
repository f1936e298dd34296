#include "server/http/openai/conversation.h"

#include <utility>

#include "core/base/status.h"

namespace moed::http {
namespace {

absl::Status ApplyTemplateVariables(const Json& value, ConversationDraft& draft) { return ReadTemplateVariables(value, draft); }

absl::Status ApplyStore(const Json& value, ConversationDraft&) { return OnlyValue(value, false, "nothing is stored"); }

absl::Status ApplyServiceTier(const Json& value, ConversationDraft&) {
  if (value == "auto" || value == "default") return absl::OkStatus();
  return InvalidArgument("there are no tiers; the values that are taken are \"auto\" and \"default\"");
}

constexpr Parameter<ConversationDraft> kParameters[] = {
    {"top_logprobs", Into<&ConversationDraft::response, &moe::v1::ResponseOptions::set_top_logprobs>},
    {"chat_template_kwargs", ApplyTemplateVariables},  // vLLM's name
    {"parallel_tool_calls", Into<&ConversationDraft::parallel_tool_calls>},
    {"store", ApplyStore},
    {"service_tier", ApplyServiceTier},
};

}  // namespace

std::span<const Parameter<ConversationDraft>> ConversationParameters() { return kParameters; }

absl::Status FinishConversation(Layout layout, ConversationDraft& draft) {
  if (draft.allowed_tools) MOED_RETURN_IF_ERROR(KeepAllowedTools(*draft.allowed_tools, layout, draft.request));
  if (!draft.parallel_tool_calls) draft.request.mutable_tool_choice()->set_at_most_one(true);
  SetTemplateVariables(draft);
  return absl::OkStatus();
}

}  // namespace moed::http
