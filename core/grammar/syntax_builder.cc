#include "core/grammar/syntax_builder.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/grammar/free_text.h"
#include "core/grammar/json_rules.h"
#include "core/grammar/json_schema.h"
#include "core/grammar/regex.h"
#include "core/grammar/vocabulary_trie.h"

namespace moed::grammar {
namespace {

using Kind = Syntax::Kind;

class SyntaxBuilder {
 public:
  SyntaxBuilder(absl::FunctionRef<bool(std::string_view)> is_special, ProgramBuilder& builder)
      : is_special_(is_special), builder_(builder), json_(builder) {}

  // Nothing once the builder is full: parts may stand in more places than there is time to look at.
  absl::StatusOr<Pc> Build(const Syntax& syntax, Pc next) {
    if (builder_.full()) return ProgramBuilder::kDead;
    auto built = BuildPart(syntax, next);
    if (built.ok() || syntax.field.empty() || std::exchange(named_, true)) return built;
    return FieldRefusal(syntax.field, built.status());
  }

 private:
  absl::StatusOr<Pc> BuildPart(const Syntax& syntax, Pc next) {
    switch (syntax.kind) {
      case Kind::kSequence:
        return Sequence(syntax.parts(), next);
      case Kind::kAlternatives:
        return Alternatives(syntax, next);
      case Kind::kRepeat:
        return Repeat(syntax, next);
      case Kind::kText:
        return builder_.Literal(syntax.text, next);
      case Kind::kMarker:
        return builder_.Literal(MarkerBytes(syntax.text), next);
      case Kind::kRegex:
        return BuildRegex(syntax.text, false, Encoding::kUtf8, builder_, next);
      case Kind::kJsonSchema:
        return CompilerOf(*syntax.schema).Build(syntax.text, next);
      case Kind::kFree:
        return FreeText(syntax, next);
      default:  // kAgain
        return builder_.Call(free_rule_, ProgramBuilder::kReturn);
    }
  }

  std::string MarkerBytes(const std::string& name) const {
    return is_special_(name) ? static_cast<char>(kSpecialByte) + name : name;
  }

  SchemaCompiler& CompilerOf(const Json& root) {
    std::unique_ptr<SchemaCompiler>& compiler = compilers_[&root];
    if (compiler == nullptr) compiler = std::make_unique<SchemaCompiler>(root, builder_, json_);
    return *compiler;
  }

  absl::StatusOr<Pc> Sequence(std::span<const Syntax> parts, Pc next) {
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      MOED_ASSIGN_OR_RETURN(next, Build(*part, next));
    }
    return next;
  }

  absl::StatusOr<Pc> Alternatives(const Syntax& syntax, Pc next) {
    std::vector<Pc> parts;
    for (const Syntax& part : syntax.parts()) {
      MOED_ASSIGN_OR_RETURN(const Pc built, Build(part, next));
      parts.push_back(built);
    }
    return builder_.Either(parts);
  }

  // The part is a rule, so that it is compiled once.
  absl::StatusOr<Pc> Repeat(const Syntax& syntax, Pc next) {
    const uint32_t rule = builder_.NewRule();
    MOED_ASSIGN_OR_RETURN(const Pc body, Build(syntax.parts().front(), ProgramBuilder::kReturn));
    builder_.SetRule(rule, body);
    return builder_.Repeat([&](Pc after) { return builder_.Call(rule, after); }, syntax.least, syntax.most, next);
  }

  absl::StatusOr<Pc> FreeText(const Syntax& syntax, Pc next) {
    const uint32_t rule = builder_.NewRule();
    const uint32_t outer = std::exchange(free_rule_, rule);
    std::vector<FreeTextMarker> markers;
    for (const Syntax& part : syntax.parts()) {
      MOED_CHECK(part.kind == Kind::kSequence && part.parts().front().kind == Kind::kMarker);
      MOED_ASSIGN_OR_RETURN(const Pc then, Sequence(part.parts().subspan(1), ProgramBuilder::kReturn));
      markers.push_back({MarkerBytes(part.parts().front().text), then});
    }
    free_rule_ = outer;
    SetFreeText(rule, markers, syntax.may_end, builder_);
    return builder_.Call(rule, next);
  }

  const absl::FunctionRef<bool(std::string_view)> is_special_;
  ProgramBuilder& builder_;
  JsonRules json_;
  absl::flat_hash_map<const Json*, std::unique_ptr<SchemaCompiler>> compilers_;
  uint32_t free_rule_ = 0;  // of the innermost kFree
  bool named_ = false;      // the field of what is wrong
};

}  // namespace

absl::StatusOr<Pc> BuildSyntax(const Syntax& syntax, absl::FunctionRef<bool(std::string_view name)> is_special,
                               ProgramBuilder& builder, Pc next) {
  return SyntaxBuilder(is_special, builder).Build(syntax, next);
}

}  // namespace moed::grammar
