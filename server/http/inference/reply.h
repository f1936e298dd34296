// Answers of the daemon as responses of the protocol, over gRPC and over HTTP.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "inference/v2.pb.h"
#include "server/http/api/relay.h"
#include "server/http/inference/request.h"

namespace moed::http {

// What stands in every response to one request.
struct ResponseNames {
  std::string model;
  std::string id;  // the client's own
};

// Which text is due as a response: each that comes, or all of it in the end.
class ResponseTexts {
 public:
  explicit ResponseTexts(bool in_parts) : in_parts_(in_parts) {}
  std::optional<std::string> Take(const moe::v1::GenerateResponse& message) {
    gathered_ += message.text();
    const bool due = message.has_finish() || (in_parts_ && !gathered_.empty());
    return due ? std::optional(std::exchange(gathered_, {})) : std::nullopt;
  }

 private:
  const bool in_parts_;
  std::string gathered_;
};

// `finish`: null where more responses follow.
inference::ModelInferResponse MakeResponse(const ResponseNames& names, std::string_view text, const moe::v1::Finish* finish);
inference::ModelStreamInferResponse MakeStreamError(const ResponseNames& names, std::string message);

std::unique_ptr<AnswerWriter<moe::v1::GenerateResponse>> MakeInferWriter(const AnswerIdentity& identity,
                                                                         const InferenceDraft& draft);
std::unique_ptr<AnswerWriter<moe::v1::GenerateResponse>> MakeGenerateWriter(const AnswerIdentity& identity,
                                                                            const InferenceDraft& draft);

// What is told of an error; it begins with the parameter that it is about.
std::string MessageOf(const ApiError& error);
// {"error": "..."}
HttpReply InferenceError(const ApiError& error);
grpc::Status InferenceStatus(const ApiError& error);

}  // namespace moed::http
