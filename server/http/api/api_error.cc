#include "server/http/api/api_error.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "core/base/status.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/wire/error_details.h"

namespace moed::http {
namespace {

struct StatusRow {
  grpc::StatusCode code;
  int status;
  std::string_view name;
};
constexpr StatusRow kStatuses[] = {
    {grpc::StatusCode::INVALID_ARGUMENT, 400, "invalid_value"},
    {grpc::StatusCode::OUT_OF_RANGE, 400, "invalid_value"},
    {grpc::StatusCode::FAILED_PRECONDITION, 400, "failed_precondition"},
    {grpc::StatusCode::UNAUTHENTICATED, 401, "invalid_api_key"},
    {grpc::StatusCode::PERMISSION_DENIED, 403, "insufficient_scope"},
    {grpc::StatusCode::NOT_FOUND, 404, "not_found"},
    {grpc::StatusCode::ALREADY_EXISTS, 409, "conflict"},
    {grpc::StatusCode::ABORTED, 409, "conflict"},
    {grpc::StatusCode::RESOURCE_EXHAUSTED, 429, "rate_limit_exceeded"},
    {grpc::StatusCode::CANCELLED, 499, "cancelled"},  // by the operator, who does not want it sent again
    {grpc::StatusCode::UNIMPLEMENTED, 501, "not_implemented"},
    {grpc::StatusCode::UNAVAILABLE, 503, "unavailable"},
    {grpc::StatusCode::DEADLINE_EXCEEDED, 504, "timeout"},
};
constexpr int kTooLarge = 413;
constexpr StatusRow kOtherwise = {grpc::StatusCode::UNKNOWN, 500, "internal_error"};

const StatusRow& RowOf(grpc::StatusCode code) {
  for (const StatusRow& row : kStatuses) {
    if (row.code == code) return row;
  }
  return kOtherwise;
}

// "stopping.stop_strings[2]" is "stop[2]" where a row says so.
std::string ParameterName(std::string_view path, std::span<const FieldName> names) {
  const size_t index = std::min(path.find('['), path.size());
  const std::string_view whole = path.substr(0, index);
  const std::string_view last = whole.substr(whole.rfind('.') + 1);
  for (const std::string_view field : {whole, last}) {
    for (const FieldName& name : names) {
      if (name.field == field) return StrCat(name.parameter, path.substr(index));
    }
  }
  return StrCat(last, path.substr(index));
}

void Describe(const google::rpc::BadRequest& bad, std::span<const FieldName> names, const FieldPlace& place, ApiError& error) {
  error.message.clear();
  for (const auto& violation : bad.field_violations()) {
    std::string name = place ? place(violation.field()) : "";
    if (name.empty()) name = ParameterName(violation.field(), names);
    if (error.parameter.empty()) error.parameter = name;
    error.message += StrCat(error.message.empty() ? "" : "; ", name, ": ", violation.description());
  }
}

// Of a refusal whose words alone begin with the field.
void NameInWords(std::span<const FieldName> names, ApiError& error) {
  const size_t end = error.message.find(": ");
  if (end == std::string::npos) return;
  for (const FieldName& name : names) {
    if (std::string_view(error.message).substr(0, end) != name.field) continue;
    error.parameter = std::string(name.parameter);
    error.message = StrCat(name.parameter, error.message.substr(end));
    return;
  }
}

// nullopt for another domain's mark, or another mark.
std::optional<PromptBeyondContext> ReadBeyondContext(const google::rpc::ErrorInfo& info) {
  if (info.domain() != kErrorDomain || info.reason() != kContextLength) return std::nullopt;
  const auto number = [&info](const char* name, int64_t& value) {
    const auto found = info.metadata().find(name);
    return found != info.metadata().end() && absl::SimpleAtoi(found->second, &value);
  };
  PromptBeyondContext beyond;
  if (!number(kContextTokens, beyond.context_tokens)) return std::nullopt;
  beyond.counted = number(kPromptTokens, beyond.prompt_tokens);
  if (!beyond.counted) beyond.prompt_tokens = beyond.context_tokens + 1;
  return beyond;
}

}  // namespace

ApiError ErrorOf(const absl::Status& status) {
  const StatusRow& row = RowOf(static_cast<grpc::StatusCode>(status.code()));
  ApiError error{.status = row.status, .message = std::string(status.message()), .code = std::string(row.name)};
  const size_t colon = error.message.find(": ");
  if (absl::IsInvalidArgument(status) && colon != std::string::npos) error.parameter = error.message.substr(0, colon);
  return error;
}

ApiError ErrorOf(const grpc::Status& status, std::span<const FieldName> names, const FieldPlace& place) {
  const StatusRow& row = RowOf(status.error_code());
  ApiError error{.status = row.status, .message = status.error_message(), .code = std::string(row.name)};
  NameInWords(names, error);
  google::rpc::Status rich;
  if (!rich.ParseFromString(status.error_details())) rich.Clear();
  for (const google::protobuf::Any& detail : rich.details()) {
    google::rpc::BadRequest bad;
    google::rpc::RetryInfo retry;
    google::rpc::ErrorInfo info;
    if (detail.UnpackTo(&bad) && bad.field_violations_size() > 0) {
      Describe(bad, names, place, error);
    } else if (detail.UnpackTo(&retry)) {
      error.retry_seconds = static_cast<double>(retry.retry_delay().seconds()) + retry.retry_delay().nanos() * 1e-9;
    } else if (detail.UnpackTo(&info)) {
      error.beyond_context = ReadBeyondContext(info);
    }
  }
  // Where waiting helps, the daemon says how long.
  const bool too_large = status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED && !error.retry_seconds.has_value();
  if (too_large) error.status = kTooLarge, error.code = "request_too_large";
  if (error.beyond_context) error.code = "context_length_exceeded";
  return error;
}

// Who is not there now may be soon.
void AddRetryAfter(const ApiError& error, HttpReply& reply) {
  constexpr int kUnavailable = 503;
  if (!error.retry_seconds.has_value() && error.status != kUnavailable) return;
  reply.headers.push_back({"retry-after", StrCat(static_cast<int64_t>(std::ceil(error.retry_seconds.value_or(1))))});
}

}  // namespace moed::http
