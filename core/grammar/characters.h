// Sets of Unicode characters, and the bytes that write them in UTF-8.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace moed::grammar {

constexpr char32_t kLastCharacter = 0x10ffff;

// Without surrogates, which no UTF-8 writes.
class CharacterSet {
 public:
  using Ranges = std::vector<std::pair<char32_t, char32_t>>;  // both ends included; ascending and apart

  static CharacterSet All() { return CharacterSet().Negated(); }
  CharacterSet() = default;
  explicit CharacterSet(Ranges ranges);
  void Add(const CharacterSet& other);
  CharacterSet Negated() const;
  CharacterSet Without(const CharacterSet& other) const;
  bool Has(char32_t character) const;
  const Ranges& ranges() const { return ranges_; }

 private:
  Ranges ranges_;
};

struct ByteRange {
  uint8_t low, high;
};
// The characters from `low` to `high` are all that these sequences write, each a range of bytes for every place.
std::vector<std::vector<ByteRange>> Utf8Sequences(char32_t low, char32_t high);

}  // namespace moed::grammar
