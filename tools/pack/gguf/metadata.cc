#include "tools/pack/gguf/metadata.h"

#include <array>
#include <limits>
#include <optional>

#include "absl/strings/escaping.h"
#include "core/base/status.h"
#include "core/base/utf8.h"

namespace moed {
namespace {

constexpr std::array<std::string_view, std::variant_size_v<GgufValue>> kKinds = {
    "a bool",   "an unsigned number",        "a signed number",     "a floating-point number",
    "a string", "an array of whole numbers", "an array of numbers", "an array of strings"};

// One index of the variant for each type: kKinds speaks of T.
template <class T>
constexpr size_t IndexOf() {
  return GgufValue(std::in_place_type<T>).index();
}

std::optional<int64_t> Whole(const GgufValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  const auto* number = std::get_if<uint64_t>(&value);
  if (number == nullptr || *number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(*number);
}

absl::Status Missing(std::string_view key) { return InvalidArgument("key ", key, " is missing"); }

absl::Status Wrong(std::string_view key, const GgufValue& value, std::string_view allowed) {
  return InvalidArgument("key ", key, " is ", ShownGgufValue(value), ", allowed: ", allowed);
}

template <class T>
absl::StatusOr<const T*> Get(const GgufMetadata& metadata, std::string_view key) {
  const GgufValue* value = metadata.Find(key);
  if (value == nullptr) return Missing(key);
  if (const T* found = std::get_if<T>(value)) return found;
  return Wrong(key, *value, kKinds[IndexOf<T>()]);
}

}  // namespace

std::string_view GgufKind(const GgufValue& value) { return kKinds[value.index()]; }

std::string ShownGgufValue(const GgufValue& value) {
  constexpr size_t kMostBytes = 120;
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<uint64_t>(&value)) return StrCat(*number);
  if (const auto* number = std::get_if<int64_t>(&value)) return StrCat(*number);
  if (const auto* number = std::get_if<double>(&value)) return StrCat(*number);
  if (const auto* text = std::get_if<std::string>(&value)) {
    const std::string_view begin = std::string_view(*text).substr(0, kMostBytes);
    const std::string shown = IsValidUtf8(begin) ? absl::Utf8SafeCHexEscape(ToAbsl(begin)) : absl::CHexEscape(ToAbsl(begin));
    return StrCat("\"", shown, text->size() > kMostBytes ? "...\"" : "\"");
  }
  return std::string(GgufKind(value));
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

absl::StatusOr<int64_t> GgufMetadata::Int(std::string_view key, int64_t low, int64_t high) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  const std::optional<int64_t> number = Whole(*value);
  if (number && *number >= low && *number <= high) return *number;
  return Wrong(key, *value, StrCat("a whole number from ", low, " to ", high));
}

absl::StatusOr<double> GgufMetadata::Number(std::string_view key, double low, double high) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  const std::optional<int64_t> whole = Whole(*value);
  const double* exact = std::get_if<double>(value);
  const double number = exact != nullptr ? *exact
                        : whole          ? static_cast<double>(*whole)
                                         : std::numeric_limits<double>::quiet_NaN();
  if (number >= low && number <= high) return number;
  return Wrong(key, *value, StrCat("a number from ", low, " to ", high));
}

absl::StatusOr<std::string> GgufMetadata::String(std::string_view key) const {
  MOED_ASSIGN_OR_RETURN(const std::string* text, Get<std::string>(*this, key));
  return *text;
}

absl::StatusOr<const std::vector<std::string>*> GgufMetadata::Strings(std::string_view key) const {
  return Get<std::vector<std::string>>(*this, key);
}

absl::StatusOr<const std::vector<int64_t>*> GgufMetadata::Ints(std::string_view key) const {
  return Get<std::vector<int64_t>>(*this, key);
}

absl::StatusOr<const std::vector<double>*> GgufMetadata::Numbers(std::string_view key) const {
  return Get<std::vector<double>>(*this, key);
}

absl::StatusOr<int64_t> GgufMetadata::IntOr(std::string_view key, int64_t otherwise, int64_t low, int64_t high) const {
  return Has(key) ? Int(key, low, high) : otherwise;
}

absl::StatusOr<bool> GgufMetadata::BoolOr(std::string_view key, bool otherwise) const {
  if (!Has(key)) return otherwise;
  MOED_ASSIGN_OR_RETURN(const bool* flag, Get<bool>(*this, key));
  return *flag;
}

}  // namespace moed
