#include "core/chat/answer/form_markers.h"

#include "core/base/check.h"

namespace moed::chat {
namespace {

void Collect(const grammar::Syntax& syntax, std::vector<std::string>& markers) {
  if (syntax.kind == grammar::Syntax::Kind::kMarker) markers.push_back(syntax.text);
  for (const grammar::Syntax& part : syntax.parts()) Collect(part, markers);
}

}  // namespace

// What a mask lets through says them all.
std::vector<std::string> MarkersOf(const AnswerFormat& format) {
  AnswerRules rules;
  rules.tools.push_back({.field = "", .name = "f", .schema = nullptr});
  const auto syntax = format.hold(rules);
  MOED_CHECK(syntax.ok());
  std::vector<std::string> markers;
  Collect(*syntax, markers);
  return markers;
}

}  // namespace moed::chat
