#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/chat/answer/call_syntax.h"
#include "core/chat/answer/harmony_parser.h"

namespace moed::chat {
namespace {

using grammar::InOrder;
using grammar::Literal;
using grammar::Marker;
using grammar::OneOf;
using grammar::Optional;
using grammar::Regex;
using grammar::Syntax;

Syntax Channel(std::string_view names) { return InOrder({Marker("<|channel|>"), Regex(names)}); }

// Of a header, after channel and recipient.
Syntax Message() {
  const Syntax json = InOrder({Regex(" ?"), Marker("<|constrain|>"), Literal("json")});
  return InOrder({OneOf({Literal(""), Literal(" json"), json}), Marker("<|message|>")});
}

// The text of a message, without the markers that would end it; `end` does, where there is one, and otherwise the answer's end.
Syntax Body(std::string_view end) {
  std::vector<Syntax> parts;
  for (const std::string_view marker : {"<|start|>", "<|channel|>", "<|call|>", "<|return|>", "<|end|>"}) {
    parts.push_back(marker == end ? InOrder({Marker(marker)}) : InOrder({Marker(marker), OneOf({})}));
  }
  return grammar::Free(std::move(parts), end.empty());
}

// One that another one follows.
Syntax Before(std::string_view channels) {
  return InOrder({Channel(channels), Marker("<|message|>"), Body("<|end|>"), Marker("<|start|>"), Literal("assistant")});
}

Syntax CallOf(const CallableTool& tool) {
  const Syntax to = Literal(StrCat(" to=functions.", tool.name)), channel = Channel("commentary|analysis");
  return InOrder({OneOf({InOrder({channel, to}), InOrder({to, channel})}), Message(), ArgumentsSyntax(tool)});
}

}  // namespace

absl::StatusOr<Syntax> HoldHarmony(const AnswerRules& rules) {
  std::vector<Syntax> last;
  if (!rules.tools.empty()) last.push_back(OneOfTools(rules.tools, CallOf));
  if (!rules.must_call) last.push_back(InOrder({Channel("final"), Message(), rules.text ? *rules.text : Body("")}));
  const Syntax before = Before(rules.must_call || rules.text ? "analysis" : "analysis|commentary");
  return InOrder({grammar::Repeat(before, 0, AnswerRules::kNoMost), OneOf(std::move(last))});
}

}  // namespace moed::chat
