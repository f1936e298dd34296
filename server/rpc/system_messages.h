// What the system and developers say in a conversation, where the model's template has a place for it.
#pragma once

#include <vector>

#include "core/chat/model_template.h"
#include "moe/v1/inference.pb.h"

namespace moed {

// Gives such messages roles that the template shows. Returns the indices of the messages that stay, ascending: the texts of each
// of the others joined those of the next or the last that stays, and order is kept.
std::vector<int> PlaceSystemMessages(const chat::SystemForm& form,
                                     google::protobuf::RepeatedPtrField<moe::v1::ChatMessage>& messages);

}  // namespace moed
