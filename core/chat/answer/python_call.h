// Calls written as Python: [f(place='A', days=2), g()].
#pragma once

#include <memory>
#include <string_view>

#include "core/chat/answer/call_reader.h"
#include "core/chat/answer/tool_schemas.h"

namespace moed::chat {

// The list that follows an opening marker, up to `close`.
std::unique_ptr<CallReader> MakePythonReader(std::string_view close);
// A whole answer that nothing marks, of known tools only: calls as Python or a list of them in JSON, whose bracket has come.
std::unique_ptr<CallReader> MakeBareListReader(const ToolSchemas& tools);
// The same with its bracket, or calls as of MakeBareJsonReader, after a marker.
std::unique_ptr<CallReader> MakeBareReader(const ToolSchemas& tools);

}  // namespace moed::chat
