// absl::Status to gRPC statuses with google.rpc details. Details travel as payloads of the absl::Status.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status.h"
#include "grpcpp/support/status.h"

namespace moed {

// Collects what is wrong with a request, field by field.
class FieldErrors {
 public:
  template <class... Parts>
  void Add(std::string field, const Parts&... description) {
    violations_.push_back({std::move(field), StrCat(description...)});
  }
  bool empty() const { return violations_.empty(); }
  // INVALID_ARGUMENT whose message lists the violations and whose google.rpc.BadRequest names each field; OK when there are none.
  absl::Status ToStatus() const;

 private:
  struct Violation {
    std::string field;
    std::string description;
  };
  std::vector<Violation> violations_;
};

// INVALID_ARGUMENT about a single field.
template <class... Parts>
absl::Status FieldError(std::string field, const Parts&... description) {
  FieldErrors errors;
  errors.Add(std::move(field), description...);
  return errors.ToStatus();
}

// Marks the error of a request that holds more than it may, which IsTooMuch knows.
absl::Status TooMuch(absl::Status error);
bool IsTooMuch(const absl::Status& error);

// Of google.rpc.ErrorInfo.
inline constexpr char kErrorDomain[] = "moed";
inline constexpr char kContextLength[] = "CONTEXT_LENGTH";  // a reason: no context holds the prompt
inline constexpr char kContextTokens[] = "context_tokens";  // its metadata
inline constexpr char kPromptTokens[] = "prompt_tokens";    // likewise; absent where they were not counted to their end

// Marks the error of a prompt that does not fit a context.
absl::Status BeyondContext(absl::Status error, int context_tokens, std::optional<size_t> prompt_tokens = std::nullopt);

// Adds google.rpc.RetryInfo.
absl::Status WithRetryAfter(absl::Status status, double seconds);

// Message and details together stay under 6 KB (beyond, clients see another status); what does not fit is cut. What RetryAfterOf
// tells becomes RetryInfo: who refuses says whether waiting helps. Never UNIMPLEMENTED or UNKNOWN, which clients take for a
// missing method or a broken server: INTERNAL.
grpc::Status ToGrpcStatus(const absl::Status& status);

// "RESOURCE_EXHAUSTED" as in gRPC's documents.
std::string_view CodeName(absl::StatusCode code);

}  // namespace moed
