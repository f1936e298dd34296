// Calls in a section between markers of their own, the arguments in JSON: DeepSeek, Kimi.
#pragma once

#include <memory>
#include <string_view>

#include "core/chat/answer/call_reader.h"

namespace moed::chat {

// { call_open NAME separator JSON call_close } section_close, with white space between. Or, as DeepSeek-V3 and R1 write it,
// "function" for NAME, and after the separator the name, a line end and the JSON between "```json" and "```".
struct SectionSyntax {
  std::string_view call_open;
  std::string_view separator;
  std::string_view call_close;
  std::string_view section_close;
  bool names_are_ids = false;  // "functions.f:0" is the call's id, f its name
};

std::unique_ptr<CallReader> MakeSectionReader(const SectionSyntax& syntax);

}  // namespace moed::chat
