#include "core/chat/answer/call_syntax.h"

#include <utility>
#include <vector>

#include "core/base/status.h"

namespace moed::chat {
namespace {

using grammar::InOrder;
using grammar::Literal;
using grammar::Marker;
using grammar::OneOf;
using grammar::Regex;
using grammar::Repeat;
using grammar::Syntax;

std::string Quoted(std::string_view text) {
  return grammar::Json(std::string(text)).dump(-1, ' ', false, grammar::Json::error_handler_t::replace);
}

}  // namespace

Syntax Several(const Syntax& one, const Syntax& between, int most) {
  const int further = most == AnswerRules::kNoMost ? most : most - 1;
  return InOrder({one, Repeat(InOrder({between, one}), 0, further)});
}

Syntax Gap() { return Regex("[ \\r\\n]{0,2}"); }

Syntax ArgumentsSyntax(const CallableTool& tool) {
  static const auto& kAnyObject = *new auto(std::make_shared<const grammar::Json>(grammar::Json{{"type", "object"}}));
  Syntax arguments = grammar::SchemaAt(tool.schema == nullptr ? kAnyObject : tool.schema, "");
  arguments.field = tool.field;
  return arguments;
}

Syntax JsonCallSyntax(const Calls& calls, const JsonShape& shape, bool brace_came) {
  const Syntax space = Regex(" ?");
  const Syntax named = OneOfTools(calls.tools, [&](const CallableTool& tool) {
    return InOrder({Literal(StrCat(Quoted(tool.name), ",")), space, Literal(StrCat("\"", shape.arguments, "\":")), space,
                    ArgumentsSyntax(tool)});
  });
  return InOrder({Literal(brace_came ? "" : "{"), space, shape.before, Literal(StrCat("\"", shape.name, "\":")), space, named,
                  shape.further, space, Literal("}")});
}

Syntax JsonListSyntax(const Calls& calls, const JsonShape& shape, bool bracket_came) {
  const Syntax space = Regex("[ \\t\\r\\n]{0,6}");
  const Syntax between = InOrder({Literal(","), space});
  return InOrder(
      {Literal(bracket_came ? "" : "["), space, Several(JsonCallSyntax(calls, shape), between, calls.most), space, Literal("]")});
}

Syntax BareJsonSyntax(const Calls& calls, bool brace_came) {
  const JsonShape shape{.arguments = "parameters"};
  const Syntax first = JsonCallSyntax(calls, shape, brace_came);
  const int further = calls.most == AnswerRules::kNoMost ? calls.most : calls.most - 1;
  return InOrder({first, Repeat(InOrder({Literal(";"), Gap(), JsonCallSyntax(calls, shape)}), 0, further)});
}

Syntax SectionCallSyntax(const Calls& calls, const SectionSyntax& section) {
  const Syntax separator = Marker(section.separator);
  const auto as_id = [&](const CallableTool& tool) {
    return InOrder(
        {Literal(StrCat("functions.", tool.name, ":")), Regex("[0-9]{1,3}"), Gap(), separator, Gap(), ArgumentsSyntax(tool)});
  };
  const auto as_name = [&](const CallableTool& tool) {
    return InOrder({Literal(tool.name), Gap(), separator, Gap(), ArgumentsSyntax(tool)});
  };
  const auto fenced = [&](const CallableTool& tool) {
    return InOrder({Literal(StrCat(tool.name, "\n```json\n")), ArgumentsSyntax(tool), Literal("\n```")});
  };
  Syntax call = section.names_are_ids ? OneOfTools(calls.tools, as_id) : OneOfTools(calls.tools, as_name);
  if (!section.names_are_ids && section.id_close.empty())
    call = OneOf({std::move(call), InOrder({Literal("function"), separator, OneOfTools(calls.tools, fenced)})});
  const Syntax id = section.id_close.empty() ? Literal("") : InOrder({Regex("[A-Za-z0-9_-]{1,32}"), Marker(section.id_close)});
  const Syntax closed = InOrder({Marker(section.call_open), Gap(), id, call, Gap(), Marker(section.call_close)});
  const Syntax close = InOrder({Gap(), Marker(section.section_close)});
  return InOrder({Gap(), Several(closed, Gap(), calls.most), section.ends_answer ? grammar::Optional(close) : close});
}

Syntax MistralCallSyntax(const Calls& calls) {
  const Syntax listed = JsonListSyntax(calls, {.further = grammar::Optional(Regex(", ?\"id\": ?\"[A-Za-z0-9]{9}\""))});
  const Syntax with_id = InOrder({Marker("[CALL_ID]"), Regex("[A-Za-z0-9]{9}"), Marker("[ARGS]")});
  const Syntax before = OneOf({with_id, Marker("[ARGS]"), Literal("")});
  const Syntax named = OneOfTools(calls.tools, [&](const CallableTool& tool) {
    return InOrder({Literal(tool.name), before, ArgumentsSyntax(tool)});
  });
  return InOrder({Regex(" ?"), OneOf({listed, named})});
}

}  // namespace moed::chat
