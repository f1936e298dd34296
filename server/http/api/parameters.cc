#include "server/http/api/parameters.h"

#include <cmath>
#include <limits>

namespace moed::http {

bool HasMember(const Json& object, std::string_view name) {
  const auto member = object.find(name);
  return member != object.end() && !member->is_null();
}

absl::StatusOr<bool> BoolOf(const Json& value) {
  if (!value.is_boolean()) return InvalidArgument(ShownJson(value), " is neither true nor false");
  return value.get<bool>();
}

absl::StatusOr<double> NumberOf(const Json& value) {
  if (!value.is_number()) return InvalidArgument(ShownJson(value), " is no number");
  const double number = value.get<double>();
  if (std::abs(number) > std::numeric_limits<float>::max()) return InvalidArgument(ShownJson(value), " is out of range");
  return number;
}

absl::StatusOr<std::string> StringOf(const Json& value) {
  if (!value.is_string()) return InvalidArgument(ShownJson(value), " is no string");
  return value.get_ref<const std::string&>();
}

absl::StatusOr<int32_t> Int32Of(const Json& value) {
  if (!value.is_number_integer()) return InvalidArgument(ShownJson(value), " is no whole number");
  constexpr auto kMost = std::numeric_limits<int32_t>::max();
  const auto number = WholeNumber("the value", value, std::numeric_limits<int32_t>::min(), kMost);
  if (!number.ok()) return InvalidArgument(ShownJson(value), " is out of range");
  return static_cast<int32_t>(*number);
}

absl::Status OnlyValue(const Json& value, const Json& only, std::string_view what) {
  if (value == only) return absl::OkStatus();
  return InvalidArgument(what, "; the only value that is taken is ", only.dump());
}

}  // namespace moed::http
