// Any text up to the first of some markers, as rules of a program.
#pragma once

#include <span>
#include <string>

#include "core/grammar/program.h"

namespace moed::grammar {

struct FreeTextMarker {
  std::string bytes;
  Pc then;  // what follows it, within the rule: ends with kReturn, or goes on with a call of the rule before it
};

// Sets `rule`: bytes but kSpecialByte (core/grammar/vocabulary_trie.h), up to the first place where a marker ends (Aho and
// Corasick, "Efficient string matching", 1975). With `may_end` the rule may return anywhere before. Markers are not empty.
void SetFreeText(uint32_t rule, std::span<const FreeTextMarker> markers, bool may_end, ProgramBuilder& builder);

}  // namespace moed::grammar
