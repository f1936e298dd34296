#include "server/wire/error_details.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "core/base/retry_after.h"
#include "core/base/utf8.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/duration.h"

namespace moed {
namespace {

constexpr std::string_view kTypePrefix = "type.googleapis.com/";
// The message is sent percent-encoded (up to three times as long) and once more inside the details, these as base64.
constexpr size_t kMaxMessageBytes = 800;
constexpr size_t kMaxViolations = 16;
constexpr size_t kMaxDescriptionBytes = 160;
constexpr size_t kMaxDetailBytes = 3500;
constexpr char kTooMuchPayload[] = "moed.too_much";

// At most `limit` bytes of valid UTF-8.
std::string Cut(std::string text, size_t limit) {
  for (size_t at = ValidUtf8Prefix(text); at < text.size(); at += ValidUtf8Prefix(std::string_view(text).substr(at)))
    text[at] = '?';
  if (text.size() <= limit) return text;
  const std::string_view head = std::string_view(text).substr(0, limit - 3);
  return StrCat(head.substr(0, ValidUtf8Prefix(head)), "...");
}

template <class Detail>
void SetDetail(absl::Status& status, const Detail& detail) {
  status.SetPayload(StrCat(kTypePrefix, detail.GetDescriptor()->full_name()), absl::Cord(detail.SerializeAsString()));
}

template <class Detail>
bool HasDetail(const absl::Status& status) {
  return status.GetPayload(StrCat(kTypePrefix, Detail::descriptor()->full_name())).has_value();
}

// The engine's messages begin with the field: "sampling.top_p: 1.5 is not in (0, 1]". OK when this one does not.
absl::Status FromFieldMessage(const absl::Status& status) {
  const std::string_view message(status.message().data(), status.message().size());
  const size_t colon = message.find(": ");
  if (colon == 0 || colon == std::string_view::npos) return absl::OkStatus();
  const std::string_view field = message.substr(0, colon);
  const bool is_path = std::all_of(field.begin(), field.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '[' || c == ']' || c == '-';
  });
  return is_path ? FieldError(std::string(field), message.substr(colon + 2)) : absl::OkStatus();
}

}  // namespace

absl::Status FieldErrors::ToStatus() const {
  if (violations_.empty()) return absl::OkStatus();
  google::rpc::BadRequest bad_request;
  std::string message = "invalid request";
  for (size_t i = 0; i < std::min(violations_.size(), kMaxViolations); ++i) {
    const Violation& violation = violations_[i];
    const std::string description = Cut(violation.description, kMaxDescriptionBytes);
    const std::string field = Cut(violation.field, kMaxDescriptionBytes);
    auto* out = bad_request.add_field_violations();
    out->set_field(field);
    out->set_description(description);
    message += StrCat(i == 0 ? ": " : "; ", field, ": ", description);
  }
  if (violations_.size() > kMaxViolations) message += StrCat("; and ", violations_.size() - kMaxViolations, " more");
  while (bad_request.ByteSizeLong() > kMaxDetailBytes - kMaxMessageBytes - 200)
    bad_request.mutable_field_violations()->RemoveLast();
  absl::Status status = absl::InvalidArgumentError(Cut(std::move(message), kMaxMessageBytes));
  SetDetail(status, bad_request);
  return status;
}

absl::Status TooMuch(absl::Status error) {
  error.SetPayload(kTooMuchPayload, absl::Cord());
  return error;
}

bool IsTooMuch(const absl::Status& error) { return error.GetPayload(kTooMuchPayload).has_value(); }

absl::Status BeyondContext(absl::Status error, int context_tokens, std::optional<size_t> prompt_tokens) {
  google::rpc::ErrorInfo info;
  info.set_domain(kErrorDomain);
  info.set_reason(kContextLength);
  (*info.mutable_metadata())[kContextTokens] = std::to_string(context_tokens);
  if (prompt_tokens) (*info.mutable_metadata())[kPromptTokens] = std::to_string(*prompt_tokens);
  SetDetail(error, info);
  return error;
}

absl::Status WithRetryAfter(absl::Status status, double seconds) {
  google::rpc::RetryInfo retry;
  *retry.mutable_retry_delay() = DurationOf(seconds);
  SetDetail(status, retry);
  return status;
}

grpc::Status ToGrpcStatus(const absl::Status& given) {
  if (given.ok()) return grpc::Status::OK;
  absl::Status status = given;
  if (const auto seconds = RetryAfterOf(given)) {
    status.ErasePayload(kRetryAfterPayload);
    status = WithRetryAfter(std::move(status), *seconds);
  }
  if (status.code() == absl::StatusCode::kInvalidArgument && !HasDetail<google::rpc::BadRequest>(status)) {
    if (absl::Status named = FromFieldMessage(status); !named.ok()) status = std::move(named);
  }
  auto code = static_cast<grpc::StatusCode>(status.code());
  if (code == grpc::StatusCode::UNIMPLEMENTED || code == grpc::StatusCode::UNKNOWN) code = grpc::StatusCode::INTERNAL;
  const std::string message = Cut(std::string(status.message().data(), status.message().size()), kMaxMessageBytes);

  google::rpc::Status details;
  details.set_code(code);
  details.set_message(message);
  status.ForEachPayload([&](absl::string_view type_url, const absl::Cord& value) {
    if (!absl::StartsWith(type_url, ToAbsl(kTypePrefix))) return;  // of this process alone
    if (details.ByteSizeLong() + type_url.size() + value.size() + 16 > kMaxDetailBytes) return;
    auto* detail = details.add_details();
    detail->set_type_url(std::string(type_url.data(), type_url.size()));
    detail->set_value(std::string(value));
  });
  return details.details().empty() ? grpc::Status(code, message) : grpc::Status(code, message, details.SerializeAsString());
}

std::string_view CodeName(absl::StatusCode code) {
  static constexpr std::string_view kNames[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

}  // namespace moed
