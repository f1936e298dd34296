// /v1/completions: from its JSON to a request of the daemon.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "server/http/api/answer.h"
#include "server/http/api/api_error.h"
#include "server/http/api/parameters.h"

namespace moed::http {

struct CompletionDraft : AnswerOptions {
  moe::v1::GenerateRequest request;  // its prompt; the rest when it is sent
};

std::span<const Parameter<CompletionDraft>> CompletionParameters();
// The daemon's fields that have another name here.
std::span<const FieldName> CompletionFieldNames();

// Of the body's text. INVALID_ARGUMENT about a parameter begins with it.
absl::StatusOr<CompletionDraft> ReadCompletion(const std::string& body);

}  // namespace moed::http
