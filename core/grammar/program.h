// A grammar over bytes, compiled: a nondeterministic automaton with a stack of return addresses, as a list of instructions.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/grammar/characters.h"

namespace moed::grammar {

using Pc = uint32_t;  // of an instruction

struct Instruction {
  enum class Kind : uint8_t {
    kBytes,   // a byte from low to high, then next
    kSplit,   // next or other
    kCall,    // the rule `other`, then next
    kReturn,  // to after the call
    kMatch,   // the text may end
    kDead,
  };
  Kind kind;
  uint8_t low = 0;
  uint8_t high = 0;
  Pc next = 0;
  Pc other = 0;
};

struct Program {
  std::vector<Instruction> code;  // each of them leads to an end: what does not is kDead, and no split leads to it
  std::vector<Pc> rules;          // where they begin
  Pc start = 0;
  std::array<uint8_t, 256> byte_class = {};  // no instruction tells bytes of one class apart
  int classes = 0;

  uint64_t bytes() const { return code.capacity() * sizeof(Instruction) + rules.capacity() * sizeof(Pc) + sizeof(Program); }
};

// How characters are written.
enum class Encoding : uint8_t {
  kUtf8,
  kJsonString,  // between the quotes of a string; what must be escaped is, in the shortest way
};

// Builds backwards: every part is told what follows it. Beyond kMostInstructions all parts are dead, and full() says so.
class ProgramBuilder {
 public:
  static constexpr size_t kMostInstructions = 1 << 16;
  static constexpr Pc kDead = 0;
  static constexpr Pc kMatch = 1;
  static constexpr Pc kReturn = 2;
  static constexpr int kNoMost = -1;

  // `most_text_bytes`: no text is longer, so that what says as much of one says nothing.
  explicit ProgramBuilder(uint64_t most_text_bytes = UINT64_MAX);
  uint64_t most_text_bytes() const { return most_text_bytes_; }
  Pc Bytes(uint8_t low, uint8_t high, Pc next);
  Pc Literal(std::string_view text, Pc next);
  // One of these; what several begin with is there once.
  Pc OneOf(std::vector<std::string> texts, Pc next);
  Pc Either(std::span<const Pc> parts);
  Pc Either(Pc one, Pc other) { return Add({Instruction::Kind::kSplit, 0, 0, one, other}); }
  // `part` from `least` to `most` times.
  Pc Repeat(absl::FunctionRef<Pc(Pc next)> part, int least, int most, Pc next);
  // One of these characters.
  Pc Character(const CharacterSet& set, Encoding encoding, Pc next);

  // Rules end with kReturn. They may call each other before they are set.
  uint32_t NewRule();
  void SetRule(uint32_t rule, Pc start) { program_.rules[rule] = start; }
  Pc Call(uint32_t rule, Pc next) { return Add({Instruction::Kind::kCall, 0, 0, next, rule}); }

  bool full() const { return full_; }
  // Nullopt's stand-in: a program whose start is kDead matches nothing.
  Program Finish(Pc start) &&;

 private:
  Pc Add(Instruction instruction);
  // Of sorted texts that differ and are alike up to `from`: what follows there.
  Pc OneOfSorted(std::span<const std::string> texts, size_t from, Pc next);
  Pc Encoded(const CharacterSet& set, Encoding encoding, Pc next);
  void Prune();
  void SkipSplits();
  void ClassifyBytes();

  const uint64_t most_text_bytes_;
  Program program_;
  std::map<std::pair<CharacterSet::Ranges, Encoding>, uint32_t> character_rules_;
  bool full_ = false;
};

}  // namespace moed::grammar
