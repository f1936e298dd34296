// What follows Mistral's [TOOL_CALLS]: a list of calls in JSON (to v7), or NAME{...}, NAME[ARGS]{...} or
// NAME[CALL_ID]ID[ARGS]{...}.
#pragma once

#include <memory>

#include "core/chat/answer/call_reader.h"

namespace moed::chat {

std::unique_ptr<CallReader> MakeMistralReader();

}  // namespace moed::chat
