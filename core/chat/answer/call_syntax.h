// Calls of tools as the readers beside this expect them, for masks: what follows the marker that opens a call, or a list of them.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/chat/answer/answer_rules.h"
#include "core/chat/answer/section_call.h"
#include "core/chat/answer/tagged_call.h"

namespace moed::chat {

struct Calls {
  std::span<const CallableTool> tools;  // that may be called
  int most;                             // AnswerRules::kNoMost
};

// White space that models write between parts of a call.
grammar::Syntax Gap();
// One of the tools, each by `call`.
template <class Call>
grammar::Syntax OneOfTools(std::span<const CallableTool> tools, Call call) {
  std::vector<grammar::Syntax> parts;
  for (const CallableTool& tool : tools) parts.push_back(call(tool));
  return grammar::OneOf(std::move(parts));
}
// The arguments as JSON.
grammar::Syntax ArgumentsSyntax(const CallableTool& tool);

// {"name": NAME, `arguments`: {...} `further`}; the first byte may have come.
grammar::Syntax JsonCallSyntax(const Calls& calls, std::string_view arguments, bool brace_came,
                               const grammar::Syntax& further = {});
// Calls with semicolons between them.
grammar::Syntax BareJsonSyntax(const Calls& calls, bool brace_came);
grammar::Syntax SectionCallSyntax(const Calls& calls, const SectionSyntax& section);
grammar::Syntax MistralCallSyntax(const Calls& calls);
// INVALID_ARGUMENT, after the tool's field, for schemas that cannot be told by values without quotes.
absl::StatusOr<grammar::Syntax> TaggedCallSyntax(const Calls& calls, const TagSyntax& tags, bool name_opened);

}  // namespace moed::chat
