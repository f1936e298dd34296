#include "core/grammar/characters.h"

#include <algorithm>
#include <iterator>

namespace moed::grammar {
namespace {

constexpr char32_t kFirstSurrogate = 0xd800;
constexpr char32_t kLastSurrogate = 0xdfff;

CharacterSet::Ranges Joined(CharacterSet::Ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  CharacterSet::Ranges joined;
  for (const auto& range : ranges) {
    if (!joined.empty() && range.first <= joined.back().second + 1) {
      joined.back().second = std::max(joined.back().second, range.second);
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

// Those of `ranges`, joined, that `holes`, joined, leave.
CharacterSet::Ranges Minus(const CharacterSet::Ranges& ranges, const CharacterSet::Ranges& holes) {
  CharacterSet::Ranges left;
  for (auto [low, high] : ranges) {
    for (const auto& hole : holes) {
      if (hole.second < low || hole.first > high) continue;
      if (hole.first > low) left.emplace_back(low, hole.first - 1);
      low = hole.second + 1;
      if (low > high) break;
    }
    if (low <= high) left.emplace_back(low, high);
  }
  return left;
}

int Utf8Length(char32_t character) { return character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4; }

uint8_t Utf8Byte(char32_t character, int length, int place) {
  const auto bits = static_cast<uint8_t>(character >> (6 * (length - 1 - place)));
  if (place > 0) return 0x80 | (bits & 0x3f);
  constexpr uint8_t kLead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  return length == 1 ? bits : kLead[length] | bits;
}

// `low` and `high` are written by equally many bytes.
void Split(char32_t low, char32_t high, int length, std::vector<std::vector<ByteRange>>& sequences) {
  for (int tail = 1; tail < length; ++tail) {
    const char32_t mask = (char32_t{1} << (6 * tail)) - 1;
    if ((low | mask) == (high | mask)) continue;
    // The last `tail` bytes must run through all their values where an earlier one changes.
    if ((low & mask) != 0) {
      Split(low, low | mask, length, sequences);
      return Split((low | mask) + 1, high, length, sequences);
    }
    if ((high & mask) != mask) {
      Split(low, (high & ~mask) - 1, length, sequences);
      return Split(high & ~mask, high, length, sequences);
    }
  }
  std::vector<ByteRange> sequence;
  for (int place = 0; place < length; ++place) {
    sequence.push_back({Utf8Byte(low, length, place), Utf8Byte(high, length, place)});
  }
  sequences.push_back(std::move(sequence));
}

}  // namespace

CharacterSet::CharacterSet(Ranges ranges) : ranges_(Minus(Joined(std::move(ranges)), {{kFirstSurrogate, kLastSurrogate}})) {}

void CharacterSet::Add(const CharacterSet& other) {
  Ranges all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  *this = CharacterSet(std::move(all));
}

CharacterSet CharacterSet::Negated() const { return CharacterSet(Minus({{0, kLastCharacter}}, ranges_)); }

CharacterSet CharacterSet::Without(const CharacterSet& other) const { return CharacterSet(Minus(ranges_, other.ranges_)); }

bool CharacterSet::Has(char32_t character) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const auto& range) { return range.first <= character && character <= range.second; });
}

std::vector<std::vector<ByteRange>> Utf8Sequences(char32_t low, char32_t high) {
  std::vector<std::vector<ByteRange>> sequences;
  for (const char32_t last : {char32_t{0x7f}, char32_t{0x7ff}, char32_t{0xffff}, kLastCharacter}) {
    if (low > last || low > high) continue;
    Split(low, std::min(high, last), Utf8Length(low), sequences);
    low = last + 1;
  }
  return sequences;
}

}  // namespace moed::grammar
