// How much an answer may differ from the exact one.
#pragma once

#include <string_view>

namespace moed {

// Of the gate mass of a token's choices in a layer, the share that may be computed below the reference precision or left out.
// Ordered: what is less is stricter.
class Fidelity {
 public:
  constexpr Fidelity() = default;  // exact
  static constexpr Fidelity Exact() { return Fidelity(0); }
  static constexpr Fidelity Bounded(float share) { return Fidelity(share); }  // in [0, 1]; 0 is exact
  static constexpr Fidelity Fast() { return Fidelity(kAnything); }            // whatever the preset does

  constexpr bool exact() const { return share_ == 0; }
  constexpr bool fast() const { return share_ == kAnything; }
  constexpr bool Allows(float share) const { return share <= share_; }
  constexpr float share() const { return fast() ? 1 : share_; }
  constexpr std::string_view class_name() const { return exact() ? "exact" : fast() ? "fast" : "bounded"; }

  friend constexpr auto operator<=>(Fidelity, Fidelity) = default;

 private:
  static constexpr float kAnything = 2;  // also sums of shares whose rounding took them beyond 1

  explicit constexpr Fidelity(float share) : share_(share) {}

  float share_ = 0;
};

}  // namespace moed
