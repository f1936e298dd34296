// Requests of the Open Inference Protocol, in whichever form they came.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "moe/v1/inference.pb.h"
#include "server/http/api/answer.h"
#include "server/http/api/api_error.h"
#include "server/http/api/parameters.h"
#include "server/http/json/bounded_json.h"

namespace moed::http {

inline constexpr std::string_view kTextInput = "text_input";
inline constexpr std::string_view kTextOutput = "text_output";
inline constexpr std::string_view kModelVersion = "1";
inline constexpr std::string_view kSamplingParameters =
    "sampling_parameters";  // of vLLM's backend: parameters as the text of JSON

struct InferenceDraft : AnswerOptions {
  moe::v1::GenerateRequest request;    // its prompt; the rest when it is sent
  std::string id;                      // the client's own
  std::optional<bool> asks_for_parts;  // stream
  bool binary_output = false;          // of HTTP
};

// How an answer goes back: in one response, or in as many as the client likes.
enum class Responses { kOne, kMany };

std::span<const Parameter<InferenceDraft>> InferenceParameters();
// The daemon's fields that have another name here.
std::span<const FieldName> InferenceFieldNames();

// What a request is made of, wherever it stood: inputs, parameters, members of JSON. No name may stand twice.
class InferenceValues {
 public:
  // INVALID_ARGUMENT begins with the name.
  absl::Status Add(std::string_view name, Json value);
  // Every member of an object.
  absl::Status AddMembers(std::string_view name, Json object);
  // Fills draft. INVALID_ARGUMENT begins with a name: one that is not known, a value that is wrong, what is missing.
  absl::Status Read(Responses responses, InferenceDraft& draft) &&;

 private:
  Json values_ = Json::object();
};

// Of outputs that are asked for: there is one. INVALID_ARGUMENT begins with "outputs".
absl::Status CheckOutput(std::string_view name);
// NOT_FOUND for another version than "1", which "" stands for.
absl::Status CheckVersion(std::string_view version);

}  // namespace moed::http
