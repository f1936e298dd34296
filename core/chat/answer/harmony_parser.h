// gpt-oss's harmony: messages "<|start|>assistant to=RECIPIENT<|channel|>CHANNEL <|constrain|>json<|message|>...<|end|>". The
// prompt ends with the first one's "<|start|>assistant".
#pragma once

#include <memory>

#include "core/chat/answer/answer_parser.h"

namespace moed::chat {

// The channel "analysis" is reasoning, every other one text. A message to somebody is a call, its recipient the tool's name
// without "functions.".
std::unique_ptr<AnswerParser> MakeHarmonyParser(const AnswerOptions& options);

}  // namespace moed::chat
