// When does reading a guess pay? Only then is it read.
//
// Guesses are read while no demand is. Of a record that takes R seconds to read, a layer step leaves G seconds free, so that a
// right guess hides G of its read and a wrong one delays the demands behind it by W: by R - G, or, where it gives way, by no more
// than what is left of its pieces in flight. The two balance where the probability is W / (G + W); a margin on top pays for what
// the guess evicts. On slow disks nothing is likely enough, on fast ones nearly everything. Where guesses turn out to be right
// less often than they have to be, more is asked of them; this is forgotten slowly, so that guessing is tried again.
//
// G is not the same within a token and from its last layer to the first one of the next. A pause is worth no more than a read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace moed {

// Fed with what happens, in nanoseconds of one clock. Not synchronised.
class PrefetchPace {
 public:
  static constexpr float kNever = 2;  // no probability is as high
  enum Gap : size_t { kWithinToken, kBetweenTokens, kGaps };

  // `behind`: of a record that a demand waits behind, where guesses give way.
  explicit PrefetchPace(double behind = 1) : behind_(behind) {}

  // A layer's demands are queued: with `missing`, some of them have to be read. `after`: the gap that ends there.
  void OnLayer(int64_t now_nanos, bool missing, Gap after = kWithinToken);
  // Nothing that the layer wants is left to read.
  void OnDemandsRead(int64_t now_nanos) { free_since_nanos_ = now_nanos; }
  // A record was read whole; `busy_nanos` = time with reads in flight since the beginning.
  void OnRecordRead(int64_t busy_nanos);
  void OnOutcome(bool useful);  // of a guess within a token

  // The least probability of a guess that pays; kNever while none does.
  float LeastProbability(Gap in = kWithinToken) const;

 private:
  static constexpr double kUnknown = -1;

  double Asked(Gap in) const;  // where the two balance

  double behind_;
  std::array<double, kGaps> free_nanos_{kUnknown, kUnknown};  // averages, see kMemory
  double record_nanos_ = 0;                                   // 0: none was read yet
  double missing_ = 0;                                        // share of layer steps
  double useful_ = 1;                                         // share of outcomes
  double distrust_ = 0;                                       // added to what is asked
  int64_t free_since_nanos_ = -1;
  int64_t busy_nanos_ = 0;
};

}  // namespace moed
