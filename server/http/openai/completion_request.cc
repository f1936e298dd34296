#include "server/http/openai/completion_request.h"

#include <algorithm>
#include <iterator>

#include "server/http/openai/common_parameters.h"
#include "server/http/openai/text_format.h"

namespace moed::http {
namespace {

constexpr int kDefaultMaxTokens = 16;  // OpenAI's, for this endpoint alone

absl::Status TakeIds(const Json& ids, moe::v1::GenerateRequest& request) {
  request.mutable_token_ids()->mutable_ids()->Reserve(static_cast<int>(ids.size()));
  return ReadElements(ids, [&](const Json& element) -> absl::Status {
    MOED_ASSIGN_OR_RETURN(const int32_t id, Int32Of(element));
    request.mutable_token_ids()->add_ids(id);
    return absl::OkStatus();
  });
}

absl::Status TakePrompt(const Json& value, moe::v1::GenerateRequest& request) {
  if (value.is_array() && !value.empty()) return TakeIds(value, request);
  if (!value.is_string()) return InvalidArgument(ShownJson(value), " is neither a string nor an array of token ids");
  request.set_text(value.get_ref<const std::string&>());
  return absl::OkStatus();
}

// A text, token ids, or an array of these.
absl::Status ApplyPrompt(const Json& value, CompletionDraft& draft) {
  const bool wraps = value.is_array() && !value.empty() && !value[0].is_number();
  if (!wraps) return TakePrompt(value, draft.prompts.emplace_back());
  if (value.size() > static_cast<size_t>(kMostChoices)) {
    return InvalidArgument(value.size(), " prompts, at most ", kMostChoices, " are taken");
  }
  draft.prompts.reserve(value.size());
  return ReadElements(value, [&](const Json& prompt) { return TakePrompt(prompt, draft.prompts.emplace_back()); });
}

absl::Status ApplyLogprobs(const Json& value, CompletionDraft& draft) {
  MOED_ASSIGN_OR_RETURN(const int32_t alternatives, Int32Of(value));
  draft.response.set_logprobs(true);
  draft.response.set_top_logprobs(alternatives);
  return absl::OkStatus();
}

absl::Status ApplySuffix(const Json& value, CompletionDraft&) {
  return OnlyValue(value, "", "nothing is inserted before a suffix");
}

constexpr Parameter<CompletionDraft> kParameters[] = {
    {"prompt", ApplyPrompt},
    {"logprobs", ApplyLogprobs},
    {"echo", Into<&CompletionDraft::echo>},
    {"best_of", Into<&CompletionDraft::best_of>},
    {"suffix", ApplySuffix},
    {"add_special_tokens", Into<&CompletionDraft::request, &moe::v1::GenerateRequest::mutable_tokenize,
                                &moe::v1::TokenizeOptions::set_add_special_tokens>},  // vLLM's name
};

constexpr FieldName kFieldNames[] = {
    {"min_new_tokens", "min_tokens"}, {"stop_strings", "stop"},    {"include_stop_string", "include_stop_str_in_output"},
    {"top_logprobs", "logprobs"},     {"prompt_logprobs", "echo"},
};

// What the daemon is asked for so that the prompts can be echoed.
void PrepareEcho(CompletionDraft& draft) {
  const bool has_ids = std::ranges::any_of(draft.prompts, [](const auto& prompt) { return prompt.has_token_ids(); });
  const bool generates = draft.stopping.max_new_tokens() != 0;
  if (!generates || has_ids || draft.response.logprobs()) draft.response.set_prompt_logprobs(true);
}

}  // namespace

std::span<const Parameter<CompletionDraft>> CompletionParameters() { return kParameters; }
std::vector<FieldName> CompletionFieldNames(const CompletionDraft& draft) {
  std::vector<FieldName> names = TextFormatNames(draft);
  names.insert(names.end(), std::begin(kFieldNames), std::end(kFieldNames));
  names.push_back({"max_new_tokens", LengthName(draft)});
  return names;
}

absl::StatusOr<CompletionDraft> ReadCompletion(const std::string& body) {
  MOED_ASSIGN_OR_RETURN(const Json json, ParseJson(body));
  CompletionDraft draft;
  MOED_RETURN_IF_ERROR(ReadParameters(json, CompletionParameters(), CommonParameters(), draft));
  if (!draft.stopping.has_max_new_tokens()) draft.stopping.set_max_new_tokens(kDefaultMaxTokens);
  if (draft.prompts.empty()) return InvalidArgument("prompt: missing");
  MOED_RETURN_IF_ERROR(CheckChoices(draft, draft.prompts.size()));
  if (draft.best_of.value_or(draft.choices) != draft.choices) {
    return InvalidArgument("best_of: ", *draft.best_of,
                           " answers to choose from; all that are computed are given, which n = ", draft.choices, " says");
  }
  if (draft.echo) PrepareEcho(draft);
  return draft;
}

}  // namespace moed::http
