#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/chat/answer/marked_parser.h"

namespace moed::chat {
namespace {

using grammar::InOrder;
using grammar::Marker;
using grammar::OneOf;
using grammar::Syntax;

// A marker may be several tokens: <|begin|>assistant<|content|>.
Syntax MarkerSyntax(std::string_view text) {
  std::vector<Syntax> parts;
  while (!text.empty()) {
    const bool tag = text.front() == '<';
    const size_t end = std::min(tag ? text.find('>') : text.find('<') - 1, text.size() - 1) + 1;
    parts.push_back(tag || parts.empty() ? Marker(text.substr(0, end)) : grammar::Literal(text.substr(0, end)));
    text.remove_prefix(end);
  }
  return InOrder(std::move(parts));
}

// A sequence that goes on.
Syntax Followed(const Syntax& sequence, Syntax next) {
  std::vector<Syntax> parts(sequence.parts().begin(), sequence.parts().end());
  parts.push_back(std::move(next));
  return InOrder(std::move(parts));
}

// The calls of a marker, its own text first.
absl::StatusOr<std::vector<Syntax>> Sections(const MarkedSyntax& syntax, const AnswerRules& rules) {
  std::vector<Syntax> sections;
  for (const CallMarker& call : syntax.calls) {
    MOED_ASSIGN_OR_RETURN(Syntax body, call.syntax({rules.tools, rules.most_calls}));
    sections.push_back(Followed(MarkerSyntax(call.marker), std::move(body)));
  }
  return sections;
}

bool OnlyLast(const MarkedSyntax& syntax) {
  return std::all_of(syntax.calls.begin(), syntax.calls.end(), [](const CallMarker& call) { return call.is_last; });
}

// Calls alone.
Syntax CallsAlone(const MarkedSyntax& syntax, const AnswerRules& rules, std::vector<Syntax> sections) {
  return grammar::Repeat(InOrder({Gap(), OneOf(std::move(sections))}), 1, OnlyLast(syntax) ? 1 : rules.most_calls);
}

Syntax TextWithoutCalls(const MarkedSyntax& syntax) {
  const Syntax never = OneOf({});
  std::vector<Syntax> parts;
  for (const CallMarker& call : syntax.calls) parts.push_back(Followed(MarkerSyntax(call.marker), never));
  return grammar::Free(std::move(parts), true);
}

// Any text, with calls in it.
Syntax TextWithCalls(const MarkedSyntax& syntax, const AnswerRules& rules, const std::vector<Syntax>& sections) {
  std::vector<Syntax> first, anywhere;
  std::string excluded;
  for (size_t i = 0; i < sections.size(); ++i) {
    const CallMarker& call = syntax.calls[i];
    if (call.before_text) {
      excluded += {'\\', call.marker.front()};
      first.push_back(InOrder({Gap(), sections[i]}));
      continue;
    }
    const Syntax after = rules.most_calls == 1 ? TextWithoutCalls(syntax) : grammar::Again();
    anywhere.push_back(call.is_last ? sections[i] : Followed(sections[i], after));
  }
  const Syntax marked = anywhere.empty() ? InOrder({}) : anywhere.front();
  for (const Envelope& envelope : syntax.envelopes) {
    if (!envelope.close.empty()) anywhere.push_back(InOrder({Marker(envelope.close), grammar::Again()}));
  }
  Syntax text = grammar::Free(std::move(anywhere), true);
  if (first.empty()) return text;
  const Syntax begun = InOrder({grammar::Regex("\\s*"), grammar::Regex(StrCat("[^\\s", excluded, "]")), text});
  first.push_back(OneOf({grammar::Regex("\\s*"), begun, marked}));
  return OneOf(std::move(first));
}

// What follows may stand after a marker that opens an envelope.
Syntax Enveloped(const MarkedSyntax& syntax, Syntax text) {
  std::vector<Syntax> opens;
  for (const Envelope& envelope : syntax.envelopes) {
    if (!envelope.open.empty()) opens.push_back(InOrder({Gap(), MarkerSyntax(envelope.open), Gap()}));
  }
  return opens.empty() ? text : InOrder({grammar::Optional(OneOf(std::move(opens))), std::move(text)});
}

// The text of a format, which its envelope may close.
Syntax EnvelopedFormat(const MarkedSyntax& syntax, const Syntax& format) {
  std::vector<Syntax> closes;
  for (const Envelope& envelope : syntax.envelopes) {
    if (!envelope.close.empty()) closes.push_back(InOrder({Gap(), Marker(envelope.close)}));
  }
  return Enveloped(syntax, closes.empty() ? format : InOrder({format, grammar::Optional(OneOf(std::move(closes)))}));
}

}  // namespace

absl::StatusOr<Syntax> HoldMarked(const MarkedSyntax& syntax, const AnswerRules& rules) {
  if (rules.must_call && syntax.calls.empty())
    return InvalidArgument(
        "tool_choice.kind: this model writes calls of tools in no form that is known, so that none can be asked for");
  const bool calls = !rules.tools.empty() && !syntax.calls.empty();
  std::vector<Syntax> sections;
  if (calls) {
    MOED_ASSIGN_OR_RETURN(sections, Sections(syntax, rules));
  }
  Syntax body;
  if (rules.must_call) {
    body = CallsAlone(syntax, rules, std::move(sections));
  } else if (!rules.text) {
    body = Enveloped(syntax, TextWithCalls(syntax, rules, sections));
  } else if (!calls) {
    body = EnvelopedFormat(syntax, *rules.text);
  } else if (OnlyLast(syntax)) {
    return InvalidArgument("format: does not go with tools, since this model's calls are JSON as well");
  } else {
    body = OneOf({EnvelopedFormat(syntax, *rules.text), CallsAlone(syntax, rules, std::move(sections))});
  }
  if (syntax.reasoning_close.empty() || rules.prompt_end.ends_with(syntax.reasoning_close)) return body;
  const Syntax to_close = InOrder({grammar::UpTo(syntax.reasoning_close), Gap()});
  if (rules.reasoning_open) return InOrder({to_close, std::move(body)});
  return InOrder({grammar::Optional(InOrder({Gap(), MarkerSyntax(syntax.reasoning_open), to_close})), std::move(body)});
}

}  // namespace moed::chat
