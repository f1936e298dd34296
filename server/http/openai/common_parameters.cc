#include "server/http/openai/common_parameters.h"

#include <iterator>
#include <vector>

#include "server/http/api/answer_parameters.h"

namespace moed::http {
namespace {

absl::Status ApplyModel(const Json& value, AnswerOptions& options) {
  MOED_ASSIGN_OR_RETURN(options.model, StringOf(value));
  return absl::OkStatus();
}

absl::Status ApplyStream(const Json& value, AnswerOptions& options) {
  MOED_ASSIGN_OR_RETURN(options.stream, BoolOf(value));
  return absl::OkStatus();
}

absl::Status ApplyIncludeUsage(const Json& value, AnswerOptions& options) {
  MOED_ASSIGN_OR_RETURN(options.include_usage, BoolOf(value));
  return absl::OkStatus();
}
constexpr Parameter<AnswerOptions> kStreamOptions[] = {
    {"include_usage", ApplyIncludeUsage}, {"include_obfuscation", nullptr}, {"continuous_usage_stats", nullptr}};
absl::Status ApplyStreamOptions(const Json& value, AnswerOptions& options) { return ReadMembers(value, kStreamOptions, options); }

absl::Status ApplyN(const Json& value, AnswerOptions&) { return OnlyValue(value, 1, "one answer is given to a request"); }

constexpr Parameter<AnswerOptions> kParameters[] = {
    {"model", ApplyModel}, {"stream", ApplyStream}, {"stream_options", ApplyStreamOptions}, {"n", ApplyN}, {"user", nullptr},
};

}  // namespace

std::span<const Parameter<AnswerOptions>> CommonParameters() {
  static const std::vector<Parameter<AnswerOptions>> all = [] {
    std::vector<Parameter<AnswerOptions>> rows(std::begin(kParameters), std::end(kParameters));
    rows.insert(rows.end(), AnswerParameters().begin(), AnswerParameters().end());
    return rows;
  }();
  return all;
}

}  // namespace moed::http
