// What a GGUF file says about its model: keys and values, as plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace moed {

// Unsigned and signed numbers of every width have one alternative each; an array of whole numbers or of bools is int64.
using GgufValue = std::variant<bool, uint64_t, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>>;

std::string_view GgufKind(const GgufValue& value);   // "a string", "an array of strings"
std::string ShownGgufValue(const GgufValue& value);  // for messages; of an array only what it is

// Immutable once it is read; thread-safe then.
class GgufMetadata {
 public:
  // False when the key is there already.
  bool Add(std::string key, GgufValue value) { return values_.emplace(std::move(key), std::move(value)).second; }

  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  const GgufValue* Find(std::string_view key) const;  // null when absent
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  // INVALID_ARGUMENT naming key, value and what is allowed, for a key that is absent, of another kind or out of range.
  absl::StatusOr<int64_t> Int(std::string_view key, int64_t low, int64_t high) const;
  absl::StatusOr<double> Number(std::string_view key, double low, double high) const;  // whole numbers too
  absl::StatusOr<std::string> String(std::string_view key) const;
  absl::StatusOr<const std::vector<std::string>*> Strings(std::string_view key) const;
  absl::StatusOr<const std::vector<int64_t>*> Ints(std::string_view key) const;
  absl::StatusOr<const std::vector<double>*> Numbers(std::string_view key) const;
  // `otherwise` where the key is absent.
  absl::StatusOr<int64_t> IntOr(std::string_view key, int64_t otherwise, int64_t low, int64_t high) const;
  absl::StatusOr<bool> BoolOr(std::string_view key, bool otherwise) const;

 private:
  std::map<std::string, GgufValue, std::less<>> values_;
};

}  // namespace moed
