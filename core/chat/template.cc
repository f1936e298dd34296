#include "core/chat/template.h"

#include "core/base/status.h"
#include "core/chat/evaluator.h"
#include "core/chat/parser.h"
#include "core/chat/run.h"
#include "core/chat/syntax.h"

namespace moed::chat {

Template::Template(std::unique_ptr<const Syntax> syntax) : syntax_(std::move(syntax)) {}
Template::Template(Template&&) = default;
Template& Template::operator=(Template&&) = default;
Template::~Template() = default;

absl::StatusOr<Template> Template::Parse(std::string_view source) {
  MOED_ASSIGN_OR_RETURN(Syntax syntax, moed::chat::Parse(source));
  return Template(std::make_unique<const Syntax>(std::move(syntax)));
}

absl::StatusOr<MarkedText> Template::Render(const Value& variables, const RenderOptions& options) const {
  if (!variables.is(Kind::kDict)) return InvalidArgument("a template's variables are a dict, not ", TypeName(variables));
  Run run(options.limits, options.now, options.stopping);
  return Evaluator(run, *syntax_).Render(variables.dict());
}

std::vector<std::string> Template::UnknownNames() const {
  std::vector<std::string> names;
  for (const UnknownName& unknown : syntax_->unknown) names.push_back(StrCat("line ", unknown.line, ": ", unknown.words));
  return names;
}

}  // namespace moed::chat
