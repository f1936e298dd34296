// /v1/completions: from its JSON to a request of the daemon.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/api/answer.h"
#include "server/http/api/api_error.h"
#include "server/http/api/parameters.h"

namespace moed::http {

struct CompletionDraft : AnswerOptions {
  moe::v1::GenerateRequest request;               // what its prompts have in common; the rest when it is sent
  std::vector<moe::v1::GenerateRequest> prompts;  // nothing else is in them
  bool echo = false;
  std::optional<int32_t> best_of;
};

std::span<const Parameter<CompletionDraft>> CompletionParameters();
// The daemon's fields that have another name here, but for the prompt.
std::vector<FieldName> CompletionFieldNames(const CompletionDraft& draft);

// Of the body's text. INVALID_ARGUMENT about a parameter begins with it.
absl::StatusOr<CompletionDraft> ReadCompletion(const std::string& body);

}  // namespace moed::http
