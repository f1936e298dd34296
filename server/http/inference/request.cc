#include "server/http/inference/request.h"

#include <cstdint>
#include <iterator>
#include <utility>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "server/http/api/answer_parameters.h"

namespace moed::http {
namespace {

constexpr int kDefaultMaxTokens = 16;  // vLLM's
constexpr int64_t kMicrosPerSecond = 1'000'000;

// Reads another parameter's value under this name.
absl::Status ApplyAs(std::string_view name, const Json& value, InferenceDraft& draft) {
  return FindParameter(AnswerParameters(), name)->apply(value, draft);
}

// Microseconds. What is reached by then is the answer.
absl::Status ApplyTimeout(const Json& value, InferenceDraft& draft) {
  MOED_ASSIGN_OR_RETURN(const int64_t micros, WholeNumber("the value", value, 1, int64_t{1} << 50));
  draft.stopping.mutable_time_limit()->set_seconds(micros / kMicrosPerSecond);
  draft.stopping.mutable_time_limit()->set_nanos(static_cast<int32_t>(micros % kMicrosPerSecond) * 1000);
  return absl::OkStatus();
}

// An empty text is none, as examples for TensorRT-LLM have it.
absl::Status ApplyStopWords(const Json& value, InferenceDraft& draft) {
  return value == "" ? absl::OkStatus() : ApplyAs("stop", value, draft);
}
absl::Status ApplyRandomSeed(const Json& value, InferenceDraft& draft) { return ApplyAs("seed", value, draft); }
absl::Status ApplyMinLength(const Json& value, InferenceDraft& draft) { return ApplyAs("min_tokens", value, draft); }

// Of Triton's levels the first comes first, and 0 says nothing; the names are those of the other APIs.
absl::Status ApplyPriority(const Json& value, InferenceDraft& draft) {
  if (value.is_string()) return ApplyAs("priority", value, draft);
  constexpr moe::v1::Priority kLevels[] = {moe::v1::PRIORITY_UNSPECIFIED, moe::v1::PRIORITY_HIGH, moe::v1::PRIORITY_NORMAL,
                                           moe::v1::PRIORITY_LOW};
  MOED_ASSIGN_OR_RETURN(const int64_t level, WholeNumber("the value", value, 0, std::ssize(kLevels) - 1));
  draft.priority = kLevels[level];
  return absl::OkStatus();
}

absl::Status ApplyN(const Json& value, InferenceDraft&) { return OnlyValue(value, 1, "one answer is given to a request"); }
absl::Status ApplyExclude(const Json& value, InferenceDraft&) { return OnlyValue(value, true, "prompts are not echoed"); }
absl::Status ApplyBadWords(const Json& value, InferenceDraft&) { return OnlyValue(value, "", "logit_bias forbids tokens"); }
absl::Status RefuseSequence(const Json&, InferenceDraft&) {
  return InvalidArgument("is not offered; conversations are kept by session_id");
}

constexpr Parameter<InferenceDraft> kParameters[] = {
    {kTextInput, Into<&InferenceDraft::request, &moe::v1::GenerateRequest::mutable_text>},
    {"max_tokens", Into<&InferenceDraft::stopping, &moe::v1::Stopping::set_max_new_tokens>},
    {"stream", Into<&InferenceDraft::asks_for_parts>},
    {"n", ApplyN},
    {"add_special_tokens", Into<&InferenceDraft::request, &moe::v1::GenerateRequest::mutable_tokenize,
                                &moe::v1::TokenizeOptions::set_add_special_tokens>},
    {"exclude_input_in_output", ApplyExclude},
    {"stop_words", ApplyStopWords},  // these four are TensorRT-LLM's names
    {"bad_words", ApplyBadWords},
    {"random_seed", ApplyRandomSeed},
    {"min_length", ApplyMinLength},
    {"timeout", ApplyTimeout},  // from here on Triton's
    {"priority", ApplyPriority},
    {"triton_enable_empty_final_response", nullptr},
    {"binary_data_output", Into<&InferenceDraft::binary_output>},
    {"sequence_id", RefuseSequence},
    {"sequence_start", RefuseSequence},
    {"sequence_end", RefuseSequence},
};

constexpr FieldName kFieldNames[] = {
    {"text", kTextInput},
    {"max_new_tokens", "max_tokens"},
    {"min_new_tokens", "min_tokens"},
    {"stop_strings", "stop"},
    {"include_stop_string", "include_stop_str_in_output"},
    {"time_limit", "timeout"},
};

}  // namespace

std::span<const Parameter<InferenceDraft>> InferenceParameters() { return kParameters; }
std::span<const FieldName> InferenceFieldNames() { return kFieldNames; }

absl::Status InferenceValues::Add(std::string_view name, Json value) {
  if (value.is_null()) return absl::OkStatus();
  if (name == kSamplingParameters && value.is_string()) {
    auto parsed = ParseJson(value.get_ref<const std::string&>());
    return parsed.ok() ? AddMembers(name, *std::move(parsed)) : Annotate(parsed.status(), name);
  }
  const auto [at, is_new] = values_.emplace(std::string(name), std::move(value));
  return is_new ? absl::OkStatus() : InvalidArgument(name.substr(0, 64), ": is given twice");
}

absl::Status InferenceValues::AddMembers(std::string_view name, Json object) {
  if (object.is_null()) return absl::OkStatus();
  if (!object.is_object()) return InvalidArgument(name, ": ", ShownJson(object), " is no object");
  for (auto& [member, value] : object.items()) {
    if (member == kSamplingParameters && name == kSamplingParameters) return InvalidArgument(name, ": is given twice");
    MOED_RETURN_IF_ERROR(Add(member, std::move(value)));
  }
  return absl::OkStatus();
}

absl::Status InferenceValues::Read(Responses responses, InferenceDraft& draft) && {
  draft.stopping.set_max_new_tokens(kDefaultMaxTokens);
  MOED_RETURN_IF_ERROR(ReadParameters(values_, InferenceParameters(), AnswerParameters(), draft));
  draft.stream = responses == Responses::kMany;
  if (draft.asks_for_parts == true && !draft.stream) {
    return InvalidArgument("stream: true needs ModelStreamInfer or generate_stream; here the answer is one response");
  }
  if (draft.request.prompt_case() == moe::v1::GenerateRequest::PROMPT_NOT_SET) return InvalidArgument(kTextInput, ": missing");
  return absl::OkStatus();
}

absl::Status CheckOutput(std::string_view name) {
  if (name == kTextOutput) return absl::OkStatus();
  return InvalidArgument("outputs: there is no \"", name.substr(0, 64), "\"; there is ", kTextOutput);
}

absl::Status CheckVersion(std::string_view version) {
  if (version.empty() || version == kModelVersion) return absl::OkStatus();
  return NotFound("there is no version \"", version.substr(0, 32), "\" of the model; there is \"", kModelVersion, "\"");
}

}  // namespace moed::http
