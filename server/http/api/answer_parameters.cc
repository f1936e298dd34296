#include "server/http/api/answer_parameters.h"

#include <charconv>

#include "client/fidelity.h"
#include "core/engine/request_limits.h"

namespace moed::http {
namespace {

using moe::v1::Sampling;
using moe::v1::Stopping;

constexpr RequestLimits kLimits;  // the daemon's

absl::Status ApplyTopK(const Json& value, AnswerOptions& options) {
  MOED_ASSIGN_OR_RETURN(const int32_t top_k, Int32Of(value));
  options.sampling.set_top_k(top_k == -1 ? 0 : top_k);  // both are everything
  return absl::OkStatus();
}

// Below zero as well, as two's complement.
absl::Status ApplySeed(const Json& value, AnswerOptions& options) {
  if (!value.is_number_integer()) return InvalidArgument(ShownJson(value), " is no whole number of 64 bits");
  options.sampling.set_seed(value.is_number_unsigned() ? value.get<uint64_t>() : static_cast<uint64_t>(value.get<int64_t>()));
  return absl::OkStatus();
}

absl::Status ApplyLogitBias(const Json& value, AnswerOptions& options) {
  if (!value.is_object()) return InvalidArgument(ShownJson(value), " is no object of token ids with numbers");
  for (const auto& [name, bias] : value.items()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error != std::errc() || end != name.data() + name.size()) {
      return InvalidArgument("\"", name.substr(0, 32), "\" is no token id");
    }
    const auto number = NumberOf(bias);
    if (!number.ok()) return InvalidArgument("[", id, "]: ", number.status().message());
    const auto [entry, is_new] = options.sampling.mutable_logit_bias()->insert({id, static_cast<float>(*number)});
    if (!is_new) return InvalidArgument("[", id, "]: stands twice");
  }
  return absl::OkStatus();
}

absl::Status ApplyStop(const Json& value, AnswerOptions& options) {
  if (value.is_string()) {
    options.stopping.add_stop_strings(value.get<std::string>());
    return absl::OkStatus();
  }
  return ReadStopStrings(value, options.stopping);
}

absl::Status ApplyStopTokenIds(const Json& value, AnswerOptions& options) {
  return ReadElements(value, kLimits.stop_tokens, [&](const Json& element) -> absl::Status {
    MOED_ASSIGN_OR_RETURN(const int32_t id, Int32Of(element));
    options.stopping.add_stop_token_ids(id);
    return absl::OkStatus();
  });
}

absl::Status ApplyFidelity(const Json& value, AnswerOptions& options) {
  MOED_ASSIGN_OR_RETURN(const std::string text, StringOf(value));
  MOED_ASSIGN_OR_RETURN(const auto fidelity, ParseFidelity(text));
  options.has_fidelity = fidelity.has_value();
  if (fidelity.has_value()) options.fidelity = *fidelity;
  return absl::OkStatus();
}

absl::Status ApplyPriority(const Json& value, AnswerOptions& options) {
  MOED_ASSIGN_OR_RETURN(options.priority, PriorityOf(value));
  return absl::OkStatus();
}

constexpr Parameter<AnswerOptions> kParameters[] = {
    {"temperature", Into<&AnswerOptions::sampling, &Sampling::set_temperature>},
    {"top_p", Into<&AnswerOptions::sampling, &Sampling::set_top_p>},
    {"top_k", ApplyTopK},
    {"min_p", Into<&AnswerOptions::sampling, &Sampling::set_min_p>},
    {"frequency_penalty", Into<&AnswerOptions::sampling, &Sampling::set_frequency_penalty>},
    {"presence_penalty", Into<&AnswerOptions::sampling, &Sampling::set_presence_penalty>},
    {"repetition_penalty", Into<&AnswerOptions::sampling, &Sampling::set_repetition_penalty>},
    {"seed", ApplySeed},
    {"logit_bias", ApplyLogitBias},
    {"stop", ApplyStop},
    {"stop_token_ids", ApplyStopTokenIds},
    {"min_tokens", Into<&AnswerOptions::stopping, &Stopping::set_min_new_tokens>},
    {"include_stop_str_in_output", Into<&AnswerOptions::stopping, &Stopping::set_include_stop_string>},
    {"ignore_eos", Into<&AnswerOptions::stopping, &Stopping::set_ignore_eos>},
    {"skip_special_tokens", Into<&AnswerOptions::response, &moe::v1::ResponseOptions::set_skip_special_tokens>},
    // The daemon's own.
    {"fidelity", ApplyFidelity},
    {"priority", ApplyPriority},
    {"session_id", Into<&AnswerOptions::session, &SessionOptions::id>},
    {"must_exist", Into<&AnswerOptions::session, &SessionOptions::must_exist>},
    {"expected_tokens", Into<&AnswerOptions::session, &SessionOptions::expected_tokens>},
};

}  // namespace

std::span<const Parameter<AnswerOptions>> AnswerParameters() { return kParameters; }

absl::Status ReadStopStrings(const Json& value, moe::v1::Stopping& stopping) {
  return ReadElements(value, kLimits.stop_strings, [&](const Json& text) -> absl::Status {
    MOED_ASSIGN_OR_RETURN(*stopping.add_stop_strings(), StringOf(text));
    return absl::OkStatus();
  });
}

absl::StatusOr<moe::v1::Priority> PriorityOf(const Json& value) {
  MOED_ASSIGN_OR_RETURN(const std::string text, StringOf(value));
  constexpr std::pair<std::string_view, moe::v1::Priority> kNames[] = {
      {"high", moe::v1::PRIORITY_HIGH}, {"normal", moe::v1::PRIORITY_NORMAL}, {"low", moe::v1::PRIORITY_LOW}};
  for (const auto& [name, priority] : kNames) {
    if (text == name) return priority;
  }
  return InvalidArgument("is not one of ", JoinNames(kNames, [](const auto& known) { return known.first; }));
}

}  // namespace moed::http
