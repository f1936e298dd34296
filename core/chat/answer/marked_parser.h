// Answers that are text, with reasoning and calls of tools between markers.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/chat/answer/answer_parser.h"
#include "core/chat/answer/answer_rules.h"
#include "core/chat/answer/call_reader.h"
#include "core/chat/answer/call_syntax.h"
#include "core/chat/answer/tool_schemas.h"

namespace moed::chat {

// No marker begins with another.
struct CallMarker {
  std::string_view marker;
  std::unique_ptr<CallReader> (*make)(const ToolSchemas& tools);
  absl::StatusOr<grammar::Syntax> (*syntax)(const Calls& calls);  // of what follows the marker
  bool before_text = false;                                       // it means a call only where no text came yet
  bool is_last = false;                                           // nothing follows
};

// Markers around an answer's text. The first goes where no text came before it, the second where none comes after it; elsewhere
// they are text.
struct Envelope {
  std::string_view open;   // "": there is none
  std::string_view close;  // likewise
};

// The reasoning comes before all text, "" where there is none.
struct MarkedSyntax {
  std::string_view reasoning_open;
  std::string_view reasoning_close;
  std::span<const CallMarker> calls;
  std::span<const Envelope> envelopes = {};
  bool calls_end_reasoning = false;  // a known tool's call may come within the reasoning, and is its end
};

// `syntax` must outlive the parser.
std::unique_ptr<AnswerParser> MakeMarkedParser(const MarkedSyntax& syntax, const AnswerOptions& options);

// An answer that the parser finds to be as the rules say. INVALID_ARGUMENT "FIELD: ..." for what cannot be held.
absl::StatusOr<grammar::Syntax> HoldMarked(const MarkedSyntax& syntax, const AnswerRules& rules);

}  // namespace moed::chat
