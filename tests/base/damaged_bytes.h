// Damaged variants of good contents, for the tests of what reads them. Each is handed to `visit` with the place of the damage.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <utility>

namespace moed {

struct Places {
  size_t begin = 0;
  size_t end = SIZE_MAX;  // or that of the contents
  size_t step = 1;
};

template <class Visit>
void ForEachTruncation(const std::string& good, const Places& places, Visit visit) {
  for (size_t at = places.begin; at < std::min(places.end, good.size()); at += places.step) visit(good.substr(0, at), at);
}

// One bit; `bits` of 1 to 8 of each byte in turn, others in the next byte.
template <class Visit>
void ForEachFlip(const std::string& good, const Places& places, int bits, Visit visit) {
  int bit = 0;
  for (size_t at = places.begin; at < std::min(places.end, good.size()); at += places.step) {
    for (int i = 0; i < bits; ++i) {
      std::string damaged = good;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit++ % 8);
      visit(std::move(damaged), at);
    }
  }
}

template <class Visit>
void ForEachReplaced(const std::string& good, const Places& places, std::string_view bytes, Visit visit) {
  for (size_t at = places.begin; at + bytes.size() <= std::min(places.end, good.size()); at += places.step) {
    std::string damaged = good;
    damaged.replace(at, bytes.size(), bytes);
    visit(std::move(damaged), at);
  }
}

// Up to four bytes among those places, replaced by others; half of them by such as numbers like to be damaged by.
template <class Visit>
void ForGarbled(const std::string& good, const Places& places, int rounds, uint32_t seed, Visit visit) {
  static constexpr char kHostile[] = {'\0', '\x01', '\x7f', '\x80', '\xff'};
  std::mt19937 random(seed);
  const size_t count = (std::min(places.end, good.size()) - places.begin + places.step - 1) / places.step;
  for (int round = 0; round < rounds; ++round) {
    std::string damaged = good;
    size_t at = 0;
    for (uint32_t hits = 1 + random() % 4; hits > 0; --hits) {
      at = places.begin + random() % count * places.step;
      damaged[at] = random() % 2 ? kHostile[random() % std::size(kHostile)] : static_cast<char>(random());
    }
    visit(std::move(damaged), at);
  }
}

}  // namespace moed
