// The forms in which models write answers, one row each. A template says which: it shows its model earlier answers in that form.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/chat/answer/answer_parser.h"
#include "core/chat/answer/answer_rules.h"

namespace moed::chat {

struct AnswerFormat {
  std::string_view name;
  std::string_view description;
  bool (*recognise)(std::string_view template_source);
  std::string_view reasoning_open;  // a prompt that ends with it has opened the reasoning; "" where none does
  std::unique_ptr<AnswerParser> (*make)(const AnswerOptions& options);
  // What a mask holds an answer to, so that `make`'s parser finds it to be as the rules say. INVALID_ARGUMENT "FIELD: ..." names
  // what this form cannot be held to.
  absl::StatusOr<grammar::Syntax> (*hold)(const AnswerRules& rules);
};

// In the order in which they are tried; the last one recognises everything.
std::span<const AnswerFormat> AnswerFormats();

const AnswerFormat& FormatOfTemplate(std::string_view template_source);

// Whether an answer to this prompt begins within the reasoning: templates may end a prompt with "<think>\n".
bool OpensReasoning(const AnswerFormat& format, std::string_view prompt);

}  // namespace moed::chat
