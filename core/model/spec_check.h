// What every ModelSpec satisfies, whether it came from a config.json or from a store.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "core/model/spec.h"

namespace moed {

// The integer fields with their ranges (inclusive); products of two of them stay below 2^31 where the code multiplies ints.
struct SpecInteger {
  std::string_view name;
  int ModelSpec::*member;
  int64_t low;
  int64_t high;
  // Optional: a spec that has this value does not write it.
  std::optional<int> absent = std::nullopt;
};
std::span<const SpecInteger> SpecIntegers();

struct SpecFlag {
  std::string_view name;
  bool ModelSpec::*member;
  bool optional = false;  // written where it is true
};
std::span<const SpecFlag> SpecFlags();

// Optional: a spec that has `absent` does not write it.
struct SpecNumber {
  std::string_view name;
  double ModelSpec::*member;
  double low;
  double high;
  double absent;
};
std::span<const SpecNumber> SpecNumbers();

// INVALID_ARGUMENT naming the field, its value and what is allowed.
absl::Status CheckSpec(const ModelSpec& spec);

}  // namespace moed
