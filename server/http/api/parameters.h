// Tables of the parameters that an API knows: each is read, ignored or refused, and what no table names is an error.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/statusor.h"
#include "core/base/json_value.h"
#include "core/base/status.h"
#include "server/http/json/bounded_json.h"

namespace moed::http {

// Whose value null is as if it were absent; so null is taken for names that no table has, too.
template <class Draft>
struct Parameter {
  std::string_view name;
  // INVALID_ARGUMENT says what is wrong with the value; it may begin with the place inside it ("[3].role: "). Null: ignored.
  absl::Status (*apply)(const Json& value, Draft& draft);
};

template <class Draft>
const Parameter<Draft>* FindParameter(std::span<const Parameter<Draft>> table, std::string_view name) {
  for (const Parameter<Draft>& parameter : table) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

// "stop" and "[3]: 5 is no string" are "stop[3]: 5 is no string".
inline absl::Status InParameter(std::string_view name, const absl::Status& status) {
  if (status.ok()) return status;
  const std::string_view message(status.message().data(), status.message().size());
  const bool goes_on = name == "." || (!message.empty() && (message[0] == '[' || message[0] == '.'));
  return absl::Status(status.code(), ToAbsl(StrCat(name, goes_on ? "" : ": ", message)));
}

// `value` is not null.
template <class Draft>
absl::Status ApplyParameter(const Parameter<Draft>& parameter, const Json& value, Draft& draft) {
  if (parameter.apply == nullptr) return absl::OkStatus();
  return InParameter(parameter.name, parameter.apply(value, draft));
}

// The members of an object inside a parameter: errors begin with ".name: ".
template <class Draft>
absl::Status ReadMembers(const Json& object, std::span<const std::type_identity_t<Parameter<Draft>>> table, Draft& draft) {
  if (!object.is_object()) return InvalidArgument(ShownJson(object), " is no object");
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;
    const Parameter<Draft>* parameter = FindParameter<Draft>(table, name);
    if (parameter == nullptr) return InvalidArgument(".", name.substr(0, 64), ": unknown parameter");
    MOED_RETURN_IF_ERROR(InParameter(".", ApplyParameter(*parameter, value, draft)));
  }
  return absl::OkStatus();
}

// The elements of an array inside a parameter, each by read(element): errors begin with "[index]".
template <class Read>
absl::Status ReadElements(const Json& array, Read read) {
  if (!array.is_array()) return InvalidArgument(ShownJson(array), " is no array");
  for (size_t i = 0; i < array.size(); ++i) MOED_RETURN_IF_ERROR(InParameter(StrCat("[", i, "]"), read(array[i])));
  return absl::OkStatus();
}

// The same of an array of so many elements at most.
template <class Read>
absl::Status ReadElements(const Json& array, int most, Read read) {
  if (array.is_array() && array.size() > static_cast<size_t>(most)) {
    return InvalidArgument(array.size(), " entries, at most ", most, " are allowed");
  }
  return ReadElements(array, read);
}

// `Draft` is a `Between`, and that a `Common`: parameters stand in one of the three tables.
template <class Draft, class Between, class Common>
absl::Status ReadParameters(const Json& body, std::span<const Parameter<Draft>> own, std::span<const Parameter<Between>> between,
                            std::span<const Parameter<Common>> common, Draft& draft) {
  if (!body.is_object()) return InvalidArgument("the body must be a JSON object");
  for (const auto& [name, value] : body.items()) {
    if (value.is_null()) continue;
    if (const Parameter<Draft>* parameter = FindParameter(own, name)) {
      MOED_RETURN_IF_ERROR(ApplyParameter(*parameter, value, draft));
    } else if (const Parameter<Between>* parameter = FindParameter(between, name)) {
      MOED_RETURN_IF_ERROR(ApplyParameter(*parameter, value, static_cast<Between&>(draft)));
    } else if (const Parameter<Common>* parameter = FindParameter(common, name)) {
      MOED_RETURN_IF_ERROR(ApplyParameter(*parameter, value, static_cast<Common&>(draft)));
    } else {
      return InvalidArgument(name.substr(0, 64), ": unknown parameter");
    }
  }
  return absl::OkStatus();
}

// The same of two tables.
template <class Draft, class Common>
absl::Status ReadParameters(const Json& body, std::span<const Parameter<Draft>> own, std::span<const Parameter<Common>> common,
                            Draft& draft) {
  return ReadParameters(body, own, std::span<const Parameter<Common>>(), common, draft);
}

// Whether an object has a member that is not null.
bool HasMember(const Json& object, std::string_view name);

absl::StatusOr<bool> BoolOf(const Json& value);
absl::StatusOr<double> NumberOf(const Json& value);  // finite as a float
absl::StatusOr<std::string> StringOf(const Json& value);
absl::StatusOr<int32_t> Int32Of(const Json& value);

template <class T>
absl::StatusOr<T> ValueOf(const Json& value) {
  if constexpr (std::is_same_v<T, bool>) return BoolOf(value);
  if constexpr (std::is_same_v<T, int32_t>) return Int32Of(value);
  if constexpr (std::is_same_v<T, std::string>) return StringOf(value);
  if constexpr (std::is_same_v<T, float>) {
    MOED_ASSIGN_OR_RETURN(const double number, NumberOf(value));
    return static_cast<float>(number);
  }
}

inline absl::Status Put(const Json& value, auto& field) {
  MOED_ASSIGN_OR_RETURN(field, ValueOf<std::remove_reference_t<decltype(field)>>(value));
  return absl::OkStatus();
}
template <class T>
absl::Status Put(const Json& value, std::optional<T>& field) {
  MOED_ASSIGN_OR_RETURN(field, ValueOf<T>(value));
  return absl::OkStatus();
}
template <class Message, class T>
absl::Status Put(const Json& value, Message& message, void (Message::*set)(T)) {
  MOED_ASSIGN_OR_RETURN(const T read, ValueOf<T>(value));
  (message.*set)(read);
  return absl::OkStatus();
}

// Of a row: the value goes where the members lead, each a field, mutable_field() or, the last, set_field(value).
template <auto kMember, auto... kRest, class Object>
absl::Status Into(const Json& value, Object& object) {
  if constexpr (std::is_member_object_pointer_v<decltype(kMember)>) {
    if constexpr (sizeof...(kRest) > 0)
      return Into<kRest...>(value, object.*kMember);
    else
      return Put(value, object.*kMember);
  } else if constexpr (std::is_invocable_v<decltype(kMember), Object&>) {
    if constexpr (sizeof...(kRest) > 0)
      return Into<kRest...>(value, *(object.*kMember)());
    else
      return Put(value, *(object.*kMember)());
  } else {
    return Put(value, object, kMember);
  }
}

// For values that are taken only as what they are without the parameter: `what` says what is not offered.
absl::Status OnlyValue(const Json& value, const Json& only, std::string_view what);

}  // namespace moed::http
