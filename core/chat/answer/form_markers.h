// The markers of a form of answers.
#pragma once

#include <string>
#include <vector>

#include "core/chat/answer/answer_format.h"

namespace moed::chat {

// All that an answer in this form may have: around its reasoning, its text and its calls.
std::vector<std::string> MarkersOf(const AnswerFormat& format);

}  // namespace moed::chat
