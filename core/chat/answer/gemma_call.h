// What follows Gemma 4's <|tool_call>: call:NAME{KEY:VALUE,...}, and its end.
#pragma once

#include <memory>

#include "core/chat/answer/call_reader.h"

namespace moed::chat {

std::unique_ptr<CallReader> MakeGemmaReader();

}  // namespace moed::chat
