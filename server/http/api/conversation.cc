#include "server/http/api/conversation.h"

#include <utility>

#include "core/base/status.h"

namespace moed::http {

absl::Status ReadTemplateVariables(const Json& value, ConversationOptions& options) {
  if (!value.is_object()) return InvalidArgument(ShownJson(value), " is no object");
  options.template_variables.update(value);
  return absl::OkStatus();
}

// gpt-oss' template has a variable of this name; others do not look at it.
absl::Status ReadReasoningEffort(const Json& value, ConversationOptions& options) {
  MOED_ASSIGN_OR_RETURN(options.template_variables["reasoning_effort"], StringOf(value));
  return absl::OkStatus();
}

void SetTemplateVariables(ConversationOptions& options) {
  if (!options.template_variables.empty()) options.request.set_template_variables(options.template_variables.dump());
}

void BeginWithSystem(std::string text, google::protobuf::RepeatedPtrField<moe::v1::ChatMessage>& messages) {
  moe::v1::ChatMessage& system = *messages.Add();
  system.set_role("system");
  system.add_content()->set_text(std::move(text));
  for (int i = messages.size() - 1; i > 0; --i) messages.SwapElements(i, i - 1);
}

}  // namespace moed::http
