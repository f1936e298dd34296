// Answers that are text, with reasoning and calls of tools between markers.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/chat/answer/answer_parser.h"
#include "core/chat/answer/call_reader.h"
#include "core/chat/answer/tool_schemas.h"

namespace moed::chat {

// No marker begins with another.
struct CallMarker {
  std::string_view marker;
  std::unique_ptr<CallReader> (*make)(const ToolSchemas& tools);
  bool before_text = false;  // it means a call only where no text came yet
};

// The reasoning comes before all text, "" where there is none.
struct MarkedSyntax {
  std::string_view reasoning_open;
  std::string_view reasoning_close;
  std::span<const CallMarker> calls;
};

// `syntax` must outlive the parser.
std::unique_ptr<AnswerParser> MakeMarkedParser(const MarkedSyntax& syntax, const AnswerOptions& options);

}  // namespace moed::chat
