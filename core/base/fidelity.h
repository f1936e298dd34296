// How much an answer may differ from the exact one.
#pragma once

#include <cstdint>
#include <string_view>

namespace moed {

// Ordered: what is less is stricter. Each class allows what those before it allow.
//   exact        nothing
//   fast-matmul  a backend that has them multiplies many rows with the trunk's matrices in halves (ComputeBackend::MatMul)
//   bounded      of the gate mass of a token's choices in a layer, a share that may be computed below the reference precision or
//                left out
//   fast         whatever the preset does
class Fidelity {
 public:
  constexpr Fidelity() = default;  // exact
  static constexpr Fidelity Exact() { return Fidelity(Class::kExact, 0); }
  static constexpr Fidelity FastMatmul() { return Fidelity(Class::kFastMatmul, 0); }
  // `share` in [0, 1]; 0 is exact.
  static constexpr Fidelity Bounded(float share) { return share == 0 ? Exact() : Fidelity(Class::kBounded, share); }
  static constexpr Fidelity Fast() { return Fidelity(Class::kFast, kAnything); }

  constexpr bool exact() const { return class_ == Class::kExact; }
  constexpr bool fast() const { return class_ == Class::kFast; }
  constexpr bool fast_matmul() const { return class_ >= Class::kFastMatmul; }
  constexpr bool Allows(float share) const { return share <= share_; }
  constexpr float share() const { return fast() ? 1 : share_; }
  // What it says of experts alone.
  constexpr Fidelity OfExperts() const { return class_ == Class::kFastMatmul ? Exact() : *this; }
  constexpr std::string_view class_name() const {
    constexpr std::string_view kNames[] = {"exact", "fast-matmul", "bounded", "fast"};
    return kNames[static_cast<int>(class_)];
  }

  friend constexpr auto operator<=>(Fidelity, Fidelity) = default;

 private:
  enum class Class : uint8_t { kExact, kFastMatmul, kBounded, kFast };
  static constexpr float kAnything = 2;  // also sums of shares whose rounding took them beyond 1

  constexpr Fidelity(Class of, float share) : class_(of), share_(share) {}

  Class class_ = Class::kExact;
  float share_ = 0;
};

}  // namespace moed
