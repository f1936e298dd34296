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
// One after another, `between` them.
grammar::Syntax Several(const grammar::Syntax& one, const grammar::Syntax& between, int most);
// The arguments as JSON.
grammar::Syntax ArgumentsSyntax(const CallableTool& tool);

// {`before` `name`: NAME, `arguments`: {...} `further`}.
struct JsonShape {
  std::string_view arguments = "arguments";
  std::string_view name = "name";
  grammar::Syntax before = {}, further = {};
};
// The first byte may have come.
grammar::Syntax JsonCallSyntax(const Calls& calls, const JsonShape& shape, bool brace_came = false);
// A list of them.
grammar::Syntax JsonListSyntax(const Calls& calls, const JsonShape& shape, bool bracket_came = false);
// Calls with semicolons between them.
grammar::Syntax BareJsonSyntax(const Calls& calls, bool brace_came);
// INVALID_ARGUMENT, after the tool's field, for schemas that say more of arguments than each one's.
absl::StatusOr<grammar::Syntax> PythonCallSyntax(const Calls& calls, bool bracket_came);
absl::StatusOr<grammar::Syntax> GemmaCallSyntax(const Calls& calls);
grammar::Syntax SectionCallSyntax(const Calls& calls, const SectionSyntax& section);
grammar::Syntax MistralCallSyntax(const Calls& calls);
// INVALID_ARGUMENT, after the tool's field, for schemas that cannot be told by values without quotes.
absl::StatusOr<grammar::Syntax> TaggedCallSyntax(const Calls& calls, const TagSyntax& tags, bool name_opened);

}  // namespace moed::chat
