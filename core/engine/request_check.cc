#include "core/engine/request_check.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/base/utf8.h"
#include "core/expert/routing.h"

namespace moed {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Whole numbers in all of their digits.
std::string Shown(double value) {
  constexpr double kMostWhole = 1e15;
  const bool whole = std::abs(value) < kMostWhole && std::trunc(value) == value;
  return value == kInfinity ? "infinity" : whole ? StrCat(static_cast<int64_t>(value)) : StrCat(value);
}

struct Range {
  double low;
  double high;
  bool low_excluded = false;
  bool high_excluded = false;

  bool Holds(double value) const {  // never a NaN
    return (low_excluded ? value > low : value >= low) && (high_excluded ? value < high : value <= high);
  }
  std::string Text() const { return StrCat(low_excluded ? "(" : "[", Shown(low), ", ", Shown(high), high_excluded ? ")" : "]"); }
};

absl::Status CheckRange(std::string_view field, double value, const Range& range) {
  if (range.Holds(value)) return absl::OkStatus();
  return InvalidArgument(field, ": ", Shown(value), " is not in ", range.Text());
}

struct SamplingRule {
  std::string_view field;
  float SamplingParams::*value;
  Range range;
};
constexpr SamplingRule kSamplingRules[] = {
    {"sampling.temperature", &SamplingParams::temperature, {0, kInfinity, false, true}},
    {"sampling.top_p", &SamplingParams::top_p, {0, 1}},
    {"sampling.min_p", &SamplingParams::min_p, {0, 1}},
    {"sampling.repetition_penalty", &SamplingParams::repetition_penalty, {0, kInfinity, true, true}},
    {"sampling.frequency_penalty", &SamplingParams::frequency_penalty, {-2, 2}},
    {"sampling.presence_penalty", &SamplingParams::presence_penalty, {-2, 2}},
};

absl::Status CheckBytes(std::string_view field, const std::string& value, int least, int most) {
  if (static_cast<int>(value.size()) >= least && value.size() <= static_cast<size_t>(most)) return absl::OkStatus();
  return InvalidArgument(field, ": ", value.size(), " bytes, allowed are ", least, " to ", most);
}

absl::Status CheckCount(std::string_view field, size_t count, int most) {
  if (count <= static_cast<size_t>(most)) return absl::OkStatus();
  return InvalidArgument(field, ": ", count, " entries, at most ", most, " are allowed");
}

absl::Status CheckToken(std::string_view field, size_t index, TokenId token, int vocabulary) {
  if (token.value() >= 0 && token.value() < vocabulary) return absl::OkStatus();
  return InvalidArgument(field, "[", index, "]: token ", token.value(), " is not in the vocabulary [0, ", vocabulary - 1, "]");
}

absl::Status CheckSampling(const SamplingParams& sampling, const EngineLimits& limits) {
  for (const SamplingRule& rule : kSamplingRules) MOED_RETURN_IF_ERROR(CheckRange(rule.field, sampling.*rule.value, rule.range));
  MOED_RETURN_IF_ERROR(CheckRange("sampling.top_k", sampling.top_k, {0, std::numeric_limits<int>::max()}));
  MOED_RETURN_IF_ERROR(CheckCount("sampling.logit_bias", sampling.logit_bias.size(), limits.request.logit_biases));
  for (size_t i = 0; i < sampling.logit_bias.size(); ++i) {
    const auto& [token, bias] = sampling.logit_bias[i];
    MOED_RETURN_IF_ERROR(CheckToken("sampling.logit_bias", i, token, limits.vocabulary));
    MOED_RETURN_IF_ERROR(CheckRange(StrCat("sampling.logit_bias[", token.value(), "]"), bias, {-100, 100}));
  }
  return absl::OkStatus();
}

// Of more than the context leaves an answer has what it leaves, unless the operator said how many may be asked for.
absl::Status CheckMaxNewTokens(int asked, const EngineLimits& limits) {
  constexpr std::string_view kField = "stopping.max_new_tokens";
  if (!limits.max_new_tokens) return CheckRange(kField, asked, {1, kInfinity, false, true});
  if (asked <= *limits.max_new_tokens) return CheckRange(kField, asked, {1, static_cast<double>(*limits.max_new_tokens)});
  return InvalidArgument(kField, ": ", asked, " is not in [1, ", *limits.max_new_tokens, "], the server's --max-new-tokens");
}

absl::Status CheckStopping(const StoppingParams& stopping, const EngineLimits& limits) {
  if (stopping.max_new_tokens) MOED_RETURN_IF_ERROR(CheckMaxNewTokens(*stopping.max_new_tokens, limits));
  const int most_tokens = limits.MostNewTokens(stopping.max_new_tokens, 1);
  MOED_RETURN_IF_ERROR(CheckRange("stopping.min_new_tokens", stopping.min_new_tokens, {0, static_cast<double>(most_tokens)}));
  MOED_RETURN_IF_ERROR(CheckCount("stopping.stop_strings", stopping.stop_strings.size(), limits.request.stop_strings));
  for (size_t i = 0; i < stopping.stop_strings.size(); ++i) {
    const std::string field = StrCat("stopping.stop_strings[", i, "]");
    MOED_RETURN_IF_ERROR(CheckBytes(field, stopping.stop_strings[i], 1, limits.request.stop_string_bytes));
    if (!IsValidUtf8(stopping.stop_strings[i])) return InvalidArgument(field, ": not UTF-8");
  }
  MOED_RETURN_IF_ERROR(CheckCount("stopping.stop_token_ids", stopping.stop_tokens.size(), limits.request.stop_tokens));
  for (size_t i = 0; i < stopping.stop_tokens.size(); ++i) {
    MOED_RETURN_IF_ERROR(CheckToken("stopping.stop_token_ids", i, stopping.stop_tokens[i], limits.vocabulary));
  }
  if (!stopping.time_limit_seconds) return absl::OkStatus();
  return CheckRange("stopping.time_limit", *stopping.time_limit_seconds, {0, kInfinity, true, true});
}

// An answer ends where its format says.
absl::Status CheckFormat(const EngineRequest& request) {
  if (request.format == nullptr) return absl::OkStatus();
  if (request.stopping.ignore_eos)
    return InvalidArgument("stopping.ignore_eos: does not go with an answer that is held to a form");
  if (request.stopping.min_new_tokens == 0) return absl::OkStatus();
  return InvalidArgument("stopping.min_new_tokens: ", request.stopping.min_new_tokens,
                         " does not go with an answer that is held to a form");
}

absl::Status CheckContext(const EngineRequest& request, const EngineLimits& limits, int session_tokens) {
  const int64_t most = limits.max_context - (request.kind == RequestKind::kGenerate ? 1 : 0) - session_tokens;
  if (static_cast<int64_t>(request.prompt.size()) <= most) return absl::OkStatus();
  const std::string_view remedy =
      most < 1 ? ": the conversation has reached its end; begin another, or delete it and send what is still needed" : "";
  return InvalidArgument("prompt: ", request.prompt.size(), " tokens",
                         session_tokens > 0 ? StrCat(" after ", session_tokens, " of the session") : "",
                         " are too many: a context of ", limits.max_context, " tokens leaves room for ",
                         std::max<int64_t>(most, 0), remedy);
}

// A source is encoded, and a prompt with a prefix computed, in one step.
absl::Status CheckWholePrompt(const EngineRequest& request, const EngineLimits& limits) {
  if (limits.whole_prompt_tokens == 0) return absl::OkStatus();
  const std::string_view kind = limits.encodes ? "an encoder-decoder" : "a prefix-LM";
  if (!request.session_id.empty()) return InvalidArgument("session_id: the model is ", kind, ", which has no conversations");
  if (request.prompt.size() <= static_cast<size_t>(limits.whole_prompt_tokens)) return absl::OkStatus();
  return InvalidArgument("prompt: ", request.prompt.size(), " tokens are too many: ",
                         limits.encodes ? "an encoder takes all of a source" : "a prefix-LM takes all of a prompt",
                         " in one step, here of at most ", limits.whole_prompt_tokens, " tokens (--prefill-chunk, --max-context",
                         limits.encodes ? ")" : ", --max-running)");
}

// What is scored given a prompt that is computed whole. The context has room for it behind the prompt and, of a decoder's text of
// its own, the token that it begins with.
absl::Status CheckTarget(const EngineRequest& request, const EngineLimits& limits) {
  const std::string_view prompt = limits.encodes ? "source" : "prefix";
  if (request.kind != RequestKind::kScore || limits.whole_prompt_tokens == 0) {
    if (request.target.empty()) return absl::OkStatus();
    return InvalidArgument("target: ", request.target.size(),
                           " tokens given, but the model is a decoder, which scores a text as a whole");
  }
  if (request.target.empty()) {
    return InvalidArgument("target: missing, at least one token is needed: the model is ",
                           limits.encodes ? "an encoder-decoder" : "a prefix-LM", ", which scores what answers a ", prompt);
  }
  const int most = limits.max_context - static_cast<int>(request.prompt.size()) - (limits.encodes ? 1 : 0);
  if (request.target.size() > static_cast<size_t>(std::max(most, 0))) {
    return InvalidArgument("target: ", request.target.size(), " tokens are too many: behind a ", prompt, " of ",
                           request.prompt.size(), " a context of ", limits.max_context, " tokens leaves room for ", most);
  }
  for (size_t i = 0; i < request.target.size(); ++i) {
    MOED_RETURN_IF_ERROR(CheckToken("target", i, request.target[i], limits.vocabulary));
  }
  return absl::OkStatus();
}

absl::Status CheckSessionFields(const EngineRequest& request, const EngineLimits& limits) {
  // Beside the id that its client chose the name has its tenant's part.
  const int tenant_bytes = request.tenant.empty() ? 0 : static_cast<int>(request.tenant.size()) + 1;
  MOED_RETURN_IF_ERROR(
      CheckName("session_id", request.session_id, request.continues_session ? 1 : 0, limits.request.name_bytes + tenant_bytes));
  if (request.must_exist && request.session_id.empty()) return InvalidArgument("must_exist: needs a session_id");
  if (!request.expected_tokens) return absl::OkStatus();
  if (request.session_id.empty()) return InvalidArgument("expected_tokens: needs a session_id");
  // Beyond this server's context, too, it is the session that is another one.
  return CheckRange("expected_tokens", *request.expected_tokens, {0, kInfinity, false, true});
}

// Generate scores, too, where there is to be no answer.
std::string_view TopField(const EngineRequest& request) {
  return request.kind == RequestKind::kScore && !request.prompt_logprobs ? "top_logprobs" : "response.top_logprobs";
}

absl::Status CheckScoredAlternatives(const EngineRequest& request, const EngineLimits& limits) {
  const auto most = static_cast<size_t>(limits.request.scored_alternatives);
  const size_t scored = request.target.empty() ? request.prompt.size() : request.target.size();
  if (scored * static_cast<size_t>(request.top_logprobs) <= most) return absl::OkStatus();
  return InvalidArgument(TopField(request), ": ", request.top_logprobs, " for each of ", scored, " tokens are too many, at most ",
                         most, " together are allowed");
}

absl::Status CheckScore(const EngineRequest& request, const EngineLimits& limits) {
  if (!request.session_id.empty()) return InvalidArgument("session_id: a text to score belongs to no session");
  if (request.stopping.time_limit_seconds) return InvalidArgument("stopping.time_limit: does not apply to scoring");
  return CheckScoredAlternatives(request, limits);
}

absl::Status CheckPromptLogprobs(const EngineRequest& request, const EngineLimits& limits) {
  if (!request.prompt_logprobs) return absl::OkStatus();
  if (!request.session_id.empty()) return InvalidArgument("response.prompt_logprobs: does not go with a session_id");
  if (limits.whole_prompt_tokens > 0) {
    return InvalidArgument("response.prompt_logprobs: the model is ", limits.encodes ? "an encoder-decoder" : "a prefix-LM",
                           ", of whose prompt no token follows from those before it; Score takes a target");
  }
  return CheckScoredAlternatives(request, limits);
}

}  // namespace

absl::Status CheckName(std::string_view field, const std::string& name, int least_bytes, int most_bytes) {
  MOED_RETURN_IF_ERROR(CheckBytes(field, name, least_bytes, most_bytes));
  for (size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<uint8_t>(name[i]);
    const bool c1 = byte == 0xc2 && i + 1 < name.size() && static_cast<uint8_t>(name[i + 1]) < 0xa0;  // U+0080 to U+009F in UTF-8
    if (byte < 0x20 || byte == 0x7f || c1) return InvalidArgument(field, ": control characters are not allowed");
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(const EngineRequest& request, const EngineLimits& limits) {
  MOED_RETURN_IF_ERROR(CheckName("request_id", request.name, 1, limits.request.name_bytes));
  MOED_RETURN_IF_ERROR(CheckSessionFields(request, limits));
  if (request.prompt.empty()) return InvalidArgument("prompt: empty, at least one token is needed");
  MOED_RETURN_IF_ERROR(CheckWholePrompt(request, limits));
  MOED_RETURN_IF_ERROR(CheckContext(request, limits, 0));
  MOED_RETURN_IF_ERROR(CheckTarget(request, limits));
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    MOED_RETURN_IF_ERROR(CheckToken("prompt", i, request.prompt[i], limits.vocabulary));
  }
  MOED_RETURN_IF_ERROR(CheckSampling(request.sampling, limits));
  MOED_RETURN_IF_ERROR(CheckStopping(request.stopping, limits));
  MOED_RETURN_IF_ERROR(CheckFormat(request));
  MOED_RETURN_IF_ERROR(
      CheckRange(TopField(request), request.top_logprobs, {0, static_cast<double>(limits.request.top_logprobs)}));
  const bool has_logprobs = request.kind == RequestKind::kScore || request.logprobs || request.prompt_logprobs;
  if (request.top_logprobs > 0 && !has_logprobs) {
    return InvalidArgument("response.top_logprobs: ", request.top_logprobs,
                           " needs response.logprobs or response.prompt_logprobs = true");
  }
  if (request.fidelity == Fidelity::FastMatmul() && !limits.fast_matmul) {
    return FailedPrecondition("fidelity.kind: FAST_MATMUL is not served here; it is where moed runs with --fast-matmul on");
  }
  if (request.fidelity && !request.fidelity->fast()) {
    MOED_RETURN_IF_ERROR(CheckRange("fidelity.max_gate_mass", request.fidelity->share(), {0, 1}));
  }
  return request.kind == RequestKind::kScore ? CheckScore(request, limits) : CheckPromptLogprobs(request, limits);
}

absl::Status CheckSession(const EngineRequest& request, const EngineLimits& limits, std::optional<int> session_tokens) {
  const auto named = [&](std::string_view field) { return StrCat(field, ": session \"", request.session_id, "\""); };
  const int held = session_tokens.value_or(0);
  if (!session_tokens && request.must_exist) {
    return NotFound(named("must_exist"), " is not kept here: it was forgotten, or never began on this server");
  }
  if (request.expected_tokens && *request.expected_tokens != held) {
    return FailedPrecondition(named("expected_tokens"), " holds ", held, " tokens, not ", *request.expected_tokens);
  }
  if (!session_tokens && request.continues_session) return absl::AbortedError(StrCat(named("session_id"), " is no longer kept"));
  return CheckContext(request, limits, request.whole_prompt ? 0 : held);
}

}  // namespace moed
