#include "server/http/openai/common_parameters.h"

#include <iterator>
#include <vector>

#include "server/http/api/answer_parameters.h"
#include "server/http/openai/text_format.h"

namespace moed::http {
namespace {

constexpr Parameter<AnswerOptions> kStreamOptions[] = {{"include_usage", Into<&AnswerOptions::include_usage>},
                                                       {"include_obfuscation", nullptr},
                                                       {"continuous_usage_stats", nullptr}};
absl::Status ApplyStreamOptions(const Json& value, AnswerOptions& options) { return ReadMembers(value, kStreamOptions, options); }

absl::Status ApplyN(const Json& value, AnswerOptions& options) {
  MOED_ASSIGN_OR_RETURN(options.choices, Int32Of(value));
  if (options.choices >= 1 && options.choices <= kMostChoices) return absl::OkStatus();
  return InvalidArgument(options.choices, " is not in [1, ", kMostChoices, "]");
}

// Of two names for one thing.
constexpr std::string_view kMaxTokens = "max_tokens", kMaxCompletionTokens = "max_completion_tokens";
template <const std::string_view& kParameter>
absl::Status ApplyMaxTokens(const Json& value, AnswerOptions& options) {
  MOED_ASSIGN_OR_RETURN(const int32_t tokens, Int32Of(value));
  if (options.stopping.has_max_new_tokens() && options.stopping.max_new_tokens() != tokens) {
    return InvalidArgument(tokens, " is not the same as ", options.length_parameter, ", ", options.stopping.max_new_tokens(),
                           ": give one of them");
  }
  options.stopping.set_max_new_tokens(tokens);
  options.length_parameter = kParameter;
  return absl::OkStatus();
}

// Of beams, which are not offered.
absl::Status ApplyUseBeamSearch(const Json& value, AnswerOptions&) { return OnlyValue(value, false, "no beams are searched"); }
absl::Status ApplyLengthPenalty(const Json& value, AnswerOptions&) { return OnlyValue(value, 1, "no beams are searched"); }
absl::Status ApplyBadWords(const Json& value, AnswerOptions&) {
  return OnlyValue(value, Json::array(), "logit_bias forbids tokens");
}
absl::Status ApplySpaces(const Json& value, AnswerOptions&) { return OnlyValue(value, true, "tokens are decoded as they are"); }

constexpr Parameter<AnswerOptions> kParameters[] = {
    {"model", Into<&AnswerOptions::model>},
    {"stream", Into<&AnswerOptions::stream>},
    {"stream_options", ApplyStreamOptions},
    {"n", ApplyN},
    {kMaxTokens, ApplyMaxTokens<kMaxTokens>},
    {kMaxCompletionTokens, ApplyMaxTokens<kMaxCompletionTokens>},
    {"user", nullptr},
    // vLLM's, whose clients send what they are anyway.
    {"use_beam_search", ApplyUseBeamSearch},
    {"length_penalty", ApplyLengthPenalty},
    {"bad_words", ApplyBadWords},
    {"spaces_between_special_tokens", ApplySpaces},
};

}  // namespace

std::span<const Parameter<AnswerOptions>> CommonParameters() {
  static const std::vector<Parameter<AnswerOptions>> all = [] {
    std::vector<Parameter<AnswerOptions>> rows(std::begin(kParameters), std::end(kParameters));
    for (const auto more : {AnswerParameters(), TextFormatParameters()}) rows.insert(rows.end(), more.begin(), more.end());
    return rows;
  }();
  return all;
}

std::string_view LengthName(const AnswerOptions& options) {
  return options.length_parameter.empty() ? kMaxTokens : options.length_parameter;
}

absl::Status CheckChoices(const AnswerOptions& options, size_t prompts) {
  const size_t choices = prompts * static_cast<size_t>(options.choices);
  if (choices > static_cast<size_t>(kMostChoices)) {
    return InvalidArgument("n: ", options.choices, " for each of ", prompts, " prompts are ", choices, " choices, at most ",
                           kMostChoices, " are given");
  }
  if (choices == 1 || options.session.id.empty()) return absl::OkStatus();
  return InvalidArgument("session_id: a conversation goes on in one way, but ", choices, " choices are asked for");
}

}  // namespace moed::http
