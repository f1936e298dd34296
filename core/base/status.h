// Errors as absl::Status. Debian's absl::string_view is its own type, not std's: this project uses std::string_view
// everywhere and crosses over only here (StrCat, ToAbsl).
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace moed {

inline absl::string_view ToAbsl(std::string_view s) { return {s.data(), s.size()}; }

namespace internal {
template <class T>
decltype(auto) Piece(const T& part) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return ToAbsl(part);
  } else {
    return (part);
  }
}
}  // namespace internal

// absl::StrCat that also takes std::string_view.
template <class... Parts>
std::string StrCat(const Parts&... parts) {
  return absl::StrCat(internal::Piece(parts)...);
}

template <class... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return absl::InvalidArgumentError(StrCat(parts...));
}
template <class... Parts>
absl::Status NotFound(const Parts&... parts) {
  return absl::NotFoundError(StrCat(parts...));
}
template <class... Parts>
absl::Status FailedPrecondition(const Parts&... parts) {
  return absl::FailedPreconditionError(StrCat(parts...));
}
template <class... Parts>
absl::Status ResourceExhausted(const Parts&... parts) {
  return absl::ResourceExhaustedError(StrCat(parts...));
}
template <class... Parts>
absl::Status DataLoss(const Parts&... parts) {
  return absl::DataLossError(StrCat(parts...));
}
template <class... Parts>
absl::Status Internal(const Parts&... parts) {
  return absl::InternalError(StrCat(parts...));
}

// "cannot open /x: No such file or directory", with the status code that errno maps to.
template <class... Parts>
absl::Status ErrnoError(int error_number, const Parts&... parts) {
  return absl::ErrnoToStatus(error_number, StrCat(parts...));
}

// The same status with "<what>: " before its message.
inline absl::Status Annotate(const absl::Status& status, std::string_view what) {
  return status.ok() ? status : absl::Status(status.code(), StrCat(what, ": ", status.message()));
}

// "a, b, c": the list of allowed names in an error message.
template <class Range, class NameOf>
std::string JoinNames(const Range& range, NameOf&& name_of) {
  std::string joined;
  for (const auto& item : range) joined += StrCat(joined.empty() ? "" : ", ", name_of(item));
  return joined;
}

}  // namespace moed

#define MOED_CONCAT_INNER(a, b) a##b
#define MOED_CONCAT(a, b) MOED_CONCAT_INNER(a, b)

#define MOED_RETURN_IF_ERROR(expr)                                \
  do {                                                            \
    if (absl::Status moed_status_ = (expr); !moed_status_.ok()) { \
      return moed_status_;                                        \
    }                                                             \
  } while (false)

#define MOED_ASSIGN_OR_RETURN(declaration, expr) \
  MOED_ASSIGN_OR_RETURN_IMPL(MOED_CONCAT(moed_statusor_, __LINE__), declaration, expr)
#define MOED_ASSIGN_OR_RETURN_IMPL(statusor, declaration, expr) \
  auto statusor = (expr);                                       \
  if (!statusor.ok()) return std::move(statusor).status();      \
  declaration = std::move(statusor).value()
