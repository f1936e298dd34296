// moed run: from a model's files to a conversation.
#pragma once

#include <span>
#include <string>

namespace moed {

int RunModel(std::span<const std::string> arguments);

}  // namespace moed
