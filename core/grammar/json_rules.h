// The parts of JSON texts, as rules of a program.
#pragma once

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "core/grammar/program.h"

namespace moed::grammar {

class JsonRules {
 public:
  // Of a map: rules of a string and of what it names.
  struct Entry {
    uint32_t name, value;
  };

  explicit JsonRules(ProgramBuilder& builder);

  // "", a space, or a line end and up to 32 bytes of indentation.
  Pc Space(Pc next) { return builder_.Call(space_, next); }
  Pc AnyValue(Pc next) { return builder_.Call(value_, next); }
  // A string of `least` to `most` characters, kNoMost for as many as there are.
  Pc String(int least, int most, Pc next);
  Pc Number(bool whole, Pc next);
  // {"key": value, ...}; `value`: a rule.
  Pc Map(uint32_t value, Pc next);
  // The same of entries that are each one of these.
  Pc Map(std::span<const Entry> entries, Pc next);
  Pc Array(uint32_t value, int least, int most, Pc next);
  // The first values are of the rules `first`, as many as there are, and all after them of `value`.
  Pc Tuple(std::span<const uint32_t> first, uint32_t value, int least, int most, Pc next);
  // Each of the rules once at most, in any order. There is a state for every set of them.
  Pc Distinct(std::span<const uint32_t> values, int least, int most, Pc next);
  uint32_t value_rule() const { return value_; }

 private:
  void SetSpace();
  void SetCharacter();
  void SetValue();
  Pc MapOf(absl::FunctionRef<Pc(Pc next)> entry, Pc next);
  Pc Digits(int least, int most, Pc next);
  Pc Fraction(Pc next);  // ".5" or nothing

  ProgramBuilder& builder_;
  uint32_t space_, character_, value_;
};

}  // namespace moed::grammar
