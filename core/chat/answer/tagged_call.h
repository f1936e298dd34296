// Calls written with a tag around each parameter, whose values become JSON of the type that the tool's schema says.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/answer/call_reader.h"
#include "core/chat/answer/tool_schemas.h"

namespace moed::chat {

// name_open NAME name_close { key_open KEY key_close [value_open] VALUE value_close } call_close, with white space between.
// Empty: there is no such tag.
struct TagSyntax {
  std::string_view name_open;
  std::string_view name_close;
  std::string_view key_open;
  std::string_view key_close;
  std::string_view json_key_close;  // instead of key_close: the value is JSON; after key_close it is a string then
  std::string_view value_open;
  std::string_view value_close;
  std::string_view call_close;
  std::string_view section_close;  // after the last call; "": a section is one call
  bool many = false;               // a section may hold several calls
  bool lines = false;              // a value may stand on lines of its own: one line end at each side is no part of it
};

// What ends a value: its tag, with and without the line end before it. Where values stand on lines, lines that begin with what
// follows values, too: models forget value_close. The last two are these, key_open first.
std::vector<std::string> ValueEnds(const TagSyntax& syntax);

// `name_opened`: name_open has come.
std::unique_ptr<CallReader> MakeTaggedCallReader(const TagSyntax& syntax, const ToolSchemas& tools, bool name_opened = false);

}  // namespace moed::chat
