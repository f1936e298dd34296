// Regular expressions as trees.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/grammar/characters.h"

namespace moed::grammar {

struct RegexNode {
  enum class Kind : uint8_t { kCharacter, kSequence, kAlternatives, kRepeat };
  Kind kind = Kind::kSequence;
  CharacterSet characters;       // kCharacter
  std::vector<RegexNode> parts;  // kRepeat has one
  int least = 0, most = 0;       // kRepeat; ProgramBuilder::kNoMost
};

struct Alternative {
  RegexNode sequence;
  bool from_begin = false;  // it had "^"
  bool to_end = false;      // it had "$"
};

// What "." and \s are.
enum class Dialect : uint8_t {
  kAscii,  // \s is of ASCII, "." all but a line feed
  kEcma,   // ECMA-262's, which JSON schemas mean
};

// Holds what an alternative matches to `least` to `most` characters, kNoMost for as many as there are. True where that is so:
// with "^" and "$", where it says so itself, or is one character, repeated.
bool HoldLength(int least, int most, Alternative& alternative);

absl::StatusOr<std::vector<Alternative>> ParseRegex(std::string_view pattern, Dialect dialect);

}  // namespace moed::grammar
