// What it costs to bring keys and values back from disk, and to compute them again, as it was seen while serving.
#pragma once

#include <cstdint>

namespace moed {

// Engine thread only.
class SpillPrices {
 public:
  // Whether `bytes` are sooner read than `tokens` are computed. What is not known yet is in favour of reading; before anything
  // was read, reading is as dear as writing was. One in 16 answers is yes where it should be no, so that prices stay known.
  bool ReadingPays(uint64_t bytes, int tokens);

  void OnRead(uint64_t bytes, int64_t nanos);
  void OnWritten(uint64_t bytes, int64_t nanos);
  void OnPrefill(int tokens, int64_t nanos);  // of a step: short ones say little of what many tokens take

 private:
  // Nanoseconds a unit; the last `memory` units count most.
  class Price {
   public:
    explicit Price(double memory) : memory_(memory) {}
    void OnSeen(double units, int64_t nanos);
    bool known() const { return known_; }
    double value() const { return value_; }

   private:
    const double memory_;
    double value_ = 0;
    bool known_ = false;
  };
  static constexpr double kBytesRemembered = 256 << 20;
  static constexpr double kTokensRemembered = 2048;
  Price read_{kBytesRemembered}, written_{kBytesRemembered}, prefill_{kTokensRemembered};
  int declined_ = 0;
};

}  // namespace moed
