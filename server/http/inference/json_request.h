// Bodies of the protocol over HTTP, from text to a request of the daemon.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/http/inference/request.h"

namespace moed::http {

// Of infer. `header_length`: what the header inference-header-content-length says; the bytes of tensors follow so much of JSON,
// "": none do. INVALID_ARGUMENT names what is wrong.
absl::StatusOr<InferenceDraft> ReadInferBody(const std::string& body, std::string_view header_length);

// Of generate (kOne) and generate_stream (kMany).
absl::StatusOr<InferenceDraft> ReadGenerateBody(const std::string& body, Responses responses);

}  // namespace moed::http
