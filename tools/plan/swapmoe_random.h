// Random numbers that are the same on every machine: the standard's distributions are not.
#pragma once

#include <cstdint>
#include <random>

namespace moed {

class SwapMoeRandom {
 public:
  explicit SwapMoeRandom(uint64_t seed) : bits_(seed) {}

  double Uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }  // [0, 1)
  int Below(int count) { return static_cast<int>(bits_() % static_cast<uint64_t>(count)); }

 private:
  std::mt19937_64 bits_;
};

}  // namespace moed
