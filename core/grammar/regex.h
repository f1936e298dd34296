// Regular expressions to programs.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "core/grammar/program.h"

namespace moed::grammar {

struct TextLength {
  int least = 0, most = ProgramBuilder::kNoMost;  // in characters
};

// Characters, escapes (\d \w \s \D \W \S \n \t \r \f \v \0 \xHH \uHHHH, and of punctuation), ".", classes, groups, "|", "*", "+",
// "?", "{m,n}". "^" and "$" stand at an alternative's begin and end only. \d, \w and \s are of ASCII; "." is all but a line feed.
// INVALID_ARGUMENT with the byte and the name of what it is not: lookarounds, references, flags, \b, \p.
//
// `search`: as a JSON schema means it. The text has what matches anywhere in it, unless "^" and "$" say where; "." and \s are
// ECMA-262's. Otherwise what matches is all of it.
//
// `length`: that texts have besides. INVALID_ARGUMENT where HoldLength of core/grammar/regex_syntax.h cannot hold it.
absl::StatusOr<Pc> BuildRegex(std::string_view pattern, bool search, Encoding encoding, ProgramBuilder& builder, Pc next,
                              const TextLength& length = {});

}  // namespace moed::grammar
