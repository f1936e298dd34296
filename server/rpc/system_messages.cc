#include "server/rpc/system_messages.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace moed {
namespace {

using moe::v1::ChatMessage;

constexpr std::string_view kSystem = "system", kDeveloper = "developer", kUser = "user", kTool = "tool";

void SetRole(ChatMessage& message, std::string_view role) { message.set_role(role.data(), role.size()); }

// The texts of `from` follow those of `to`.
void MoveTexts(ChatMessage& from, ChatMessage& to) {
  for (moe::v1::ContentPart& part : *from.mutable_content()) *to.add_content() = std::move(part);
  from.clear_content();
}

// The texts of `first` precede those of `second`.
void JoinNext(ChatMessage& first, ChatMessage& second) {
  MoveTexts(second, first);
  first.mutable_content()->Swap(second.mutable_content());
}

bool IsOfSystem(const ChatMessage& message) { return message.role() == kSystem || message.role() == kDeveloper; }

}  // namespace

std::vector<int> PlaceSystemMessages(const chat::SystemForm& form, google::protobuf::RepeatedPtrField<ChatMessage>& messages) {
  const auto leading = std::find_if_not(messages.begin(), messages.end(), IsOfSystem) - messages.begin();
  std::vector<int> stay;
  bool after_turned = false;
  for (int i = 0; i < messages.size(); ++i) {
    ChatMessage& message = messages[i];
    const bool leads = i < leading, turned = !leads && form.later_is_user && IsOfSystem(message);
    if (turned) SetRole(message, kUser);
    if (message.role() == kDeveloper && !form.knows_developers) SetRole(message, kSystem);
    ChatMessage* const last = stay.empty() ? nullptr : &messages[stay.back()];
    const bool joins_user = form.users_alternate && (turned || after_turned) && message.role() == kUser;
    if (turned && form.users_alternate && last != nullptr && last->role() == kTool) {
      MoveTexts(message, *last);
    } else if (last != nullptr && ((leads && form.leads_alone) || (joins_user && last->role() == kUser))) {
      if (last->role() == kDeveloper) SetRole(message, kDeveloper);
      JoinNext(*last, message);
      stay.back() = i;
    } else {
      stay.push_back(i);
    }
    after_turned = turned;
  }
  return stay;
}

}  // namespace moed
