#include "core/grammar/grammar.h"

#include <utility>

#include "core/base/status.h"
#include "core/grammar/syntax_builder.h"

namespace moed::grammar {

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::Make(const Syntax& syntax,
                                                             absl::FunctionRef<bool(std::string_view)> is_special,
                                                             uint64_t most_text_bytes) {
  ProgramBuilder builder(most_text_bytes);
  MOED_ASSIGN_OR_RETURN(const Pc start, BuildSyntax(syntax, is_special, builder, ProgramBuilder::kMatch));
  const auto refused = [&](const auto&... words) { return FieldRefusal(syntax.field, InvalidArgument(words...)); };
  if (builder.full()) return refused("its automaton has more than ", ProgramBuilder::kMostInstructions, " instructions");
  Program program = std::move(builder).Finish(start);
  if (program.code[program.start].kind == Instruction::Kind::kDead) return refused("no text can be what it says");
  return std::shared_ptr<const Grammar>(new Grammar(std::move(program)));
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::FromFormat(const TextFormat& format, uint64_t most_text_bytes) {
  MOED_ASSIGN_OR_RETURN(const Syntax syntax, SyntaxOf(format));
  return Make(
      syntax, [](std::string_view) { return false; }, most_text_bytes);
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::FromRegex(std::string_view pattern) {
  return FromFormat({TextFormat::Kind::kRegex, std::string(pattern)});
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::FromJsonSchema(std::string_view schema, uint64_t most_text_bytes) {
  return FromFormat({TextFormat::Kind::kJsonSchema, std::string(schema)}, most_text_bytes);
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::FromSyntax(const Syntax& syntax, const VocabularyTrie& trie,
                                                                   int most_tokens) {
  const auto is_special = [&](std::string_view name) {
    return trie.Has(std::string(1, static_cast<char>(kSpecialByte)).append(name));
  };
  return Make(syntax, is_special, static_cast<uint64_t>(most_tokens) * static_cast<uint64_t>(trie.deepest()));
}

}  // namespace moed::grammar
