// gpt-oss's harmony: messages "<|start|>assistant to=RECIPIENT<|channel|>CHANNEL <|constrain|>json<|message|>...<|end|>". The
// prompt ends with the first one's "<|start|>assistant".
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/chat/answer/answer_parser.h"
#include "core/chat/answer/answer_rules.h"

namespace moed::chat {

// The channel "analysis" is reasoning, every other one text. A message to somebody is a call, its recipient the tool's name
// without "functions.": with an object in JSON, or to one of the tools with nothing. What else stands in it is text.
std::unique_ptr<AnswerParser> MakeHarmonyParser(const AnswerOptions& options);

// As HoldMarked. An answer has one call at most, which ends it.
absl::StatusOr<grammar::Syntax> HoldHarmony(const AnswerRules& rules);

}  // namespace moed::chat
