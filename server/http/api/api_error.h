// What is wrong with a request, before it takes the form of an API.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"
#include "server/http/transport/exchange.h"

namespace moed::http {

// A prompt that does not fit the context.
struct PromptBeyondContext {
  int64_t context_tokens = 0;
  int64_t prompt_tokens = 0;
  bool counted = true;                                        // false: there are more
  int64_t most_tokens() const { return context_tokens - 1; }  // one is the answer's
};

struct ApiError {
  int status = 500;  // of HTTP
  std::string message;
  std::string parameter = "";  // the one that it is about
  std::string code = "";       // "model_not_found": for programs
  std::optional<double> retry_seconds = std::nullopt;
  std::optional<PromptBeyondContext> beyond_context = std::nullopt;  // APIs have words of their own for it
};

// How a field of the daemon's requests is called in an API: its path up to an index, or the last part of that.
struct FieldName {
  std::string_view field;
  std::string_view parameter;
};

// Where a field of the daemon's requests stands in an API's, for those that no name alone can tell; "" = its name can.
using FieldPlace = std::function<std::string(std::string_view path)>;

// Of a check that failed here. INVALID_ARGUMENT begins with the parameter: "stop[3]: 5 is no string".
ApiError ErrorOf(const absl::Status& status);
// Of a call that failed. RESOURCE_EXHAUSTED is 429 with google.rpc.RetryInfo, else 413. The fields of google.rpc.BadRequest take
// the names of the API, those without a row keep their own; what `place` has an answer for is called so instead.
ApiError ErrorOf(const grpc::Status& status, std::span<const FieldName> names, const FieldPlace& place = {});

// The header that says how long to wait: where the daemon did, and 1 s beside every other 503.
void AddRetryAfter(const ApiError& error, HttpReply& reply);

}  // namespace moed::http
