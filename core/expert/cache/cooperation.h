// HOBBIT's cooperative mode (section 4): of the experts that a layer wants and that lie in the host's memory, its processor
// computes some where they are, while others are brought to the device. Which, the prices say that were measured.
#pragma once

#include <array>
#include <cstdint>

#include "core/expert/provider.h"

namespace moed {

// Not synchronised; the cache's lock guards it.
class Cooperation {
 public:
  // `bring_seconds_per_byte`: from the host's memory to where the device computes.
  explicit Cooperation(double bring_seconds_per_byte) : bring_seconds_per_byte_(bring_seconds_per_byte) {}

  void BeginLayer(int tokens);
  // Of an expert of so many bytes that `tokens` chose: whether the processor would have computed it before the device had it,
  // each with what it has to do already in this layer. What is decided is then its work. What was never measured is tried.
  bool OnProcessor(uint64_t bytes, int tokens);
  // An expert is brought without being asked about.
  void OnBrought(uint64_t bytes) { bringing_seconds_ += bring_seconds_per_byte_ * static_cast<double>(bytes); }
  // What the processor took.
  void OnComputed(uint64_t bytes, int tokens, double seconds);

 private:
  // As measured for the nearest number of tokens; 0: nothing was.
  double ComputeSecondsPerByte(int tokens) const;

  const double bring_seconds_per_byte_;
  std::array<double, kMostTokensOfProcessor> compute_seconds_per_byte_{};  // by tokens - 1; 0: not measured
  int tokens_ = 0;                                                         // of the step
  double bringing_seconds_ = 0;                                            // of this layer
  double computing_seconds_ = 0;
};

}  // namespace moed
