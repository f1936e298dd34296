// What a text must be: a regular expression or a JSON schema, compiled.
#pragma once

#include <climits>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/grammar/program.h"
#include "core/grammar/syntax.h"
#include "core/grammar/vocabulary_trie.h"

namespace moed::grammar {

constexpr size_t kMostSourceBytes = 64 << 10;  // of a schema or an expression

// Immutable, thread-safe.
class Grammar {
 public:
  // The whole text. INVALID_ARGUMENT "at byte 7: ..." as core/grammar/regex.h says.
  static absl::StatusOr<std::shared_ptr<const Grammar>> FromRegex(std::string_view pattern);
  // A JSON text that the schema (2020-12) accepts. INVALID_ARGUMENT "at /properties/x: ..." naming what is not supported there,
  // and where a schema accepts nothing. Every text of the grammar is valid; it holds not all valid ones:
  //   - properties come in the schema's order, others only where no properties are named, and of those with "patternProperties"
  //     what a pattern matches;
  //   - white space: none, a space, or a line end and indentation, after "{", "[", "," and ":" and before "}" and "]";
  //   - numbers have up to 18 digits before the point, 17 behind it and 2 in the exponent. Those with bounds have no exponent,
  //   and
  //     18 digits in all beside the largest bound; those of a multiple that is no whole number have as many places as it;
  //   - with "pattern" or "format", a string escapes what it must and nothing else;
  //   - beside "pattern" or "format" lengths are held as HoldLength of core/grammar/regex_syntax.h says, otherwise refused;
  //   - a "maxLength" or "maxItems" that no text of `most_text_bytes` reaches says nothing;
  //   - formats are held as core/grammar/string_formats.h says; those that it does not know, and one beside a "pattern" that is
  //     held, are annotations.
  static absl::StatusOr<std::shared_ptr<const Grammar>> FromJsonSchema(std::string_view schema,
                                                                       uint64_t most_text_bytes = UINT64_MAX);
  // A text made of such, of as many of the vocabulary's tokens at most; markers are special tokens where `trie` has them. Errors
  // begin with the syntax's field.
  static absl::StatusOr<std::shared_ptr<const Grammar>> FromSyntax(const Syntax& syntax, const VocabularyTrie& trie,
                                                                   int most_tokens = INT_MAX);

  const Program& program() const { return program_; }
  uint64_t bytes() const { return program_.bytes(); }

 private:
  explicit Grammar(Program program) : program_(std::move(program)) {}
  static absl::StatusOr<std::shared_ptr<const Grammar>> Make(const Syntax& syntax,
                                                             absl::FunctionRef<bool(std::string_view)> is_special,
                                                             uint64_t most_text_bytes);
  static absl::StatusOr<std::shared_ptr<const Grammar>> FromFormat(const TextFormat& format,
                                                                   uint64_t most_text_bytes = UINT64_MAX);
  const Program program_;
};

}  // namespace moed::grammar
