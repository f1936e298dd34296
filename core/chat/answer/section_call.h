// Calls in a section between markers of their own, the arguments in JSON: DeepSeek, Kimi, Solar Open.
#pragma once

#include <memory>
#include <string_view>

#include "core/chat/answer/call_reader.h"
#include "core/chat/answer/tool_schemas.h"

namespace moed::chat {

// { call_open NAME separator JSON call_close } section_close, with white space between. Or, as DeepSeek-V3 and R1 write it,
// "function" for NAME, and after the separator the name, a line end and the JSON between "```json" and "```". With an `id_close`
// the name follows that, and ID stands before it.
struct SectionSyntax {
  std::string_view call_open;
  std::string_view separator;
  std::string_view call_close;
  std::string_view section_close;
  bool names_are_ids = false;  // "functions.f:0" is the call's id, f its name
  std::string_view id_close = "";
  bool ends_answer = false;  // section_close may be the token that ends the answer, which is no part of it
};

std::unique_ptr<CallReader> MakeSectionReader(const SectionSyntax& syntax, const ToolSchemas& tools);

}  // namespace moed::chat
