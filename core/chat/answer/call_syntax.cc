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

// One after another, `between` them.
Syntax Several(const Syntax& one, const Syntax& between, int most) {
  const int further = most == AnswerRules::kNoMost ? most : most - 1;
  return InOrder({one, Repeat(InOrder({between, one}), 0, further)});
}

}  // namespace

Syntax Gap() { return Regex("[ \\r\\n]{0,2}"); }

Syntax ArgumentsSyntax(const CallableTool& tool) {
  static const auto& kAnyObject = *new auto(std::make_shared<const grammar::Json>(grammar::Json{{"type", "object"}}));
  Syntax arguments = grammar::SchemaAt(tool.schema == nullptr ? kAnyObject : tool.schema, "");
  arguments.field = tool.field;
  return arguments;
}

Syntax JsonCallSyntax(const Calls& calls, std::string_view arguments, bool brace_came, const Syntax& further) {
  const Syntax space = Regex(" ?");
  const Syntax named = OneOfTools(calls.tools, [&](const CallableTool& tool) {
    return InOrder(
        {Literal(StrCat(Quoted(tool.name), ",")), space, Literal(StrCat("\"", arguments, "\":")), space, ArgumentsSyntax(tool)});
  });
  return InOrder({Literal(brace_came ? "" : "{"), space, Literal("\"name\":"), space, named, further, space, Literal("}")});
}

Syntax BareJsonSyntax(const Calls& calls, bool brace_came) {
  const Syntax first = JsonCallSyntax(calls, "parameters", brace_came);
  const int further = calls.most == AnswerRules::kNoMost ? calls.most : calls.most - 1;
  return InOrder({first, Repeat(InOrder({Literal(";"), Gap(), JsonCallSyntax(calls, "parameters", false)}), 0, further)});
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
  const Syntax call =
      section.names_are_ids
          ? OneOfTools(calls.tools, as_id)
          : OneOf({OneOfTools(calls.tools, as_name), InOrder({Literal("function"), separator, OneOfTools(calls.tools, fenced)})});
  const Syntax closed = InOrder({Marker(section.call_open), Gap(), call, Gap(), Marker(section.call_close)});
  return InOrder({Gap(), Several(closed, Gap(), calls.most), Gap(), Marker(section.section_close)});
}

Syntax MistralCallSyntax(const Calls& calls) {
  const Syntax id = grammar::Optional(Regex(", ?\"id\": ?\"[A-Za-z0-9]{9}\""));
  const Syntax listed = Several(JsonCallSyntax(calls, "arguments", false, id), Regex(", ?"), calls.most);
  const Syntax with_id = InOrder({Marker("[CALL_ID]"), Regex("[A-Za-z0-9]{9}"), Marker("[ARGS]")});
  const Syntax before = OneOf({with_id, Marker("[ARGS]"), Literal("")});
  const Syntax named = OneOfTools(calls.tools, [&](const CallableTool& tool) {
    return InOrder({Literal(tool.name), before, ArgumentsSyntax(tool)});
  });
  return InOrder({Regex(" ?"), OneOf({InOrder({Literal("["), listed, Literal("]")}), named})});
}

}  // namespace moed::chat
