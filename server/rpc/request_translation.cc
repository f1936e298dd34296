#include "server/rpc/request_translation.h"

#include <algorithm>
#include <utility>

#include "core/engine/request_check.h"
#include "core/expert/routing.h"

namespace moed {
namespace {

constexpr int64_t kMaxTimeLimitSeconds = 7 * 24 * 3600;

// Generate and Score have the same prompt fields.
template <class Request>
void TranslatePrompt(Request& request, PendingRequest& out, FieldErrors& errors) {
  switch (request.prompt_case()) {
    case Request::kText:
      out.is_text = true;
      out.text = std::move(*request.mutable_text());
      break;
    case Request::kTokenIds:
      out.engine.prompt.reserve(request.token_ids().ids_size());
      for (int32_t id : request.token_ids().ids()) out.engine.prompt.push_back(TokenId(id));
      if (out.engine.prompt.empty()) errors.Add("token_ids", "empty, at least one token is needed");
      break;
    case Request::PROMPT_NOT_SET:
      errors.Add("prompt", "missing: set text or token_ids");
      break;
  }
  const moe::v1::TokenizeOptions& options = request.tokenize();
  if (options.has_add_special_tokens()) out.add_special_tokens = options.add_special_tokens();
  if (options.has_parse_special_tokens()) out.parse_special_tokens = options.parse_special_tokens();
  out.engine.name = request.request_id();
}

template <class T, class Field>
void SetIf(bool present, const T& value, Field& field) {
  if (present) field = value;
}

SamplingParams TranslateSampling(const moe::v1::Sampling& in) {
  SamplingParams out;
  SetIf(in.has_temperature(), in.temperature(), out.temperature);
  SetIf(in.has_top_k(), in.top_k(), out.top_k);
  SetIf(in.has_top_p(), in.top_p(), out.top_p);
  SetIf(in.has_min_p(), in.min_p(), out.min_p);
  SetIf(in.has_repetition_penalty(), in.repetition_penalty(), out.repetition_penalty);
  SetIf(in.has_frequency_penalty(), in.frequency_penalty(), out.frequency_penalty);
  SetIf(in.has_presence_penalty(), in.presence_penalty(), out.presence_penalty);
  SetIf(in.has_seed(), in.seed(), out.seed);
  for (const auto& [token, bias] : in.logit_bias()) out.logit_bias.emplace_back(TokenId(token), bias);
  std::sort(out.logit_bias.begin(), out.logit_bias.end());  // a map's order differs from run to run
  return out;
}

StoppingParams TranslateStopping(const moe::v1::Stopping& in, FieldErrors& errors) {
  StoppingParams out;
  SetIf(in.has_max_new_tokens(), in.max_new_tokens(), out.max_new_tokens);
  SetIf(in.has_min_new_tokens(), in.min_new_tokens(), out.min_new_tokens);
  out.stop_strings.assign(in.stop_strings().begin(), in.stop_strings().end());
  for (int32_t id : in.stop_token_ids()) out.stop_tokens.push_back(TokenId(id));
  out.include_stop_string = in.include_stop_string();
  out.ignore_eos = in.ignore_eos();
  if (!in.has_time_limit()) return out;
  const auto& limit = in.time_limit();
  if (limit.seconds() < 0 || limit.seconds() > kMaxTimeLimitSeconds || limit.nanos() < 0 || limit.nanos() > 999999999 ||
      (limit.seconds() == 0 && limit.nanos() == 0)) {
    errors.Add("stopping.time_limit", limit.seconds(), " s ", limit.nanos(), " ns is not above 0 and at most ",
               kMaxTimeLimitSeconds, " s");
  } else {
    out.time_limit_seconds = static_cast<double>(limit.seconds()) + limit.nanos() * 1e-9;
  }
  return out;
}

// The engine checks the range of the mass.
std::optional<Fidelity> TranslateFidelity(const moe::v1::Fidelity& in, FieldErrors& errors) {
  if (in.kind() != moe::v1::Fidelity::BOUNDED && in.max_gate_mass() != 0) {
    errors.Add("fidelity.max_gate_mass", in.max_gate_mass(), " goes with BOUNDED only");
  }
  switch (in.kind()) {
    case moe::v1::Fidelity::KIND_UNSPECIFIED:
      return std::nullopt;
    case moe::v1::Fidelity::EXACT:
      return Fidelity::Exact();
    case moe::v1::Fidelity::BOUNDED:
      if (in.max_gate_mass() <= 1) return Fidelity::Bounded(in.max_gate_mass());
      errors.Add("fidelity.max_gate_mass", in.max_gate_mass(), " is not in [0, 1]");
      return std::nullopt;
    case moe::v1::Fidelity::FAST:
      return Fidelity::Fast();
    case moe::v1::Fidelity::FAST_MATMUL:
      return Fidelity::FastMatmul();
    default:
      errors.Add("fidelity.kind", static_cast<int>(in.kind()),
                 " is unknown; known are EXACT (1), BOUNDED (2), FAST (3) and FAST_MATMUL (4)");
      return std::nullopt;
  }
}

// What it says is compiled where there is a vocabulary for it.
std::optional<grammar::Syntax> TranslateFormat(const moe::v1::OutputFormat& in, FieldErrors& errors) {
  using Kind = grammar::TextFormat::Kind;
  const auto syntax_of = [&](std::string field, Kind kind, const std::string& source) -> std::optional<grammar::Syntax> {
    auto syntax = grammar::SyntaxOf({kind, source});
    if (!syntax.ok()) {
      errors.Add(field, syntax.status().message());
      return std::nullopt;
    }
    syntax->field = std::move(field);
    return *std::move(syntax);
  };
  switch (in.kind_case()) {
    case moe::v1::OutputFormat::kJsonSchema:
      return syntax_of("format.json_schema", Kind::kJsonSchema, in.json_schema());
    case moe::v1::OutputFormat::kRegex:
      return syntax_of("format.regex", Kind::kRegex, in.regex());
    case moe::v1::OutputFormat::kJsonObject:
      if (!in.json_object()) errors.Add("format.json_object", "false says nothing; leave format out");
      return syntax_of("format.json_object", Kind::kJsonObject, "");
    default:
      return std::nullopt;
  }
}

// Where nothing is to be generated what is left is a score. What speaks of an answer's tokens does not go with it.
void TranslateNoAnswer(const moe::v1::GenerateRequest& in, PendingRequest& out, FieldErrors& errors) {
  if (in.stopping().min_new_tokens() > 0) errors.Add("stopping.min_new_tokens", "does not go with max_new_tokens = 0");
  if (in.format().kind_case() != moe::v1::OutputFormat::KIND_NOT_SET) errors.Add("format", "does not go with max_new_tokens = 0");
  out.engine.kind = RequestKind::kScore;
  out.engine.stopping.max_new_tokens.reset();
}

}  // namespace

EncodeOptions TranslateTokenizeOptions(const moe::v1::TokenizeOptions& options) {
  EncodeOptions out;
  SetIf(options.has_add_special_tokens(), options.add_special_tokens(), out.add_special_tokens);
  SetIf(options.has_parse_special_tokens(), options.parse_special_tokens(), out.parse_special_tokens);
  return out;
}

Priority TranslatePriority(moe::v1::Priority in, FieldErrors& errors) {
  switch (in) {
    case moe::v1::PRIORITY_HIGH:
      return Priority::kHigh;
    case moe::v1::PRIORITY_UNSPECIFIED:
    case moe::v1::PRIORITY_NORMAL:
      return Priority::kNormal;
    case moe::v1::PRIORITY_LOW:
      return Priority::kLow;
    default:
      errors.Add("priority", static_cast<int>(in), " is unknown; known are HIGH (1), NORMAL (2) and LOW (3)");
      return Priority::kNormal;
  }
}

void TranslateAnswer(const AnswerFields& in, PendingRequest& out, FieldErrors& errors) {
  const moe::v1::ResponseOptions& response = in.response;
  out.engine.kind = RequestKind::kGenerate;
  out.engine.fidelity = TranslateFidelity(in.fidelity, errors);
  out.engine.sampling = TranslateSampling(in.sampling);
  out.engine.stopping = TranslateStopping(in.stopping, errors);
  out.engine.logprobs = response.logprobs();
  out.engine.top_logprobs = response.top_logprobs();
  out.engine.prompt_logprobs = response.prompt_logprobs();
  SetIf(response.has_skip_special_tokens(), response.skip_special_tokens(), out.engine.skip_special_tokens);
  out.return_prompt_tokens = response.return_prompt_tokens();
  out.format = TranslateFormat(in.format, errors);
}

absl::StatusOr<PendingRequest> TranslateGenerate(moe::v1::GenerateRequest request) {
  PendingRequest out;
  FieldErrors errors;
  TranslatePrompt(request, out, errors);
  TranslateAnswer({request.sampling(), request.stopping(), request.response(), request.fidelity(), request.format()}, out,
                  errors);
  const moe::v1::Stopping& stopping = request.stopping();
  if (out.engine.prompt_logprobs && stopping.has_max_new_tokens() && stopping.max_new_tokens() == 0) {
    TranslateNoAnswer(request, out, errors);
  }
  out.engine.priority = TranslatePriority(request.priority(), errors);
  out.engine.session_id = request.session_id();
  out.engine.must_exist = request.must_exist();
  SetIf(request.has_expected_tokens(), request.expected_tokens(), out.engine.expected_tokens);
  MOED_RETURN_IF_ERROR(errors.ToStatus());
  return out;
}

absl::StatusOr<PendingRequest> TranslateScore(moe::v1::ScoreRequest request) {
  PendingRequest out;
  FieldErrors errors;
  TranslatePrompt(request, out, errors);
  out.engine.kind = RequestKind::kScore;
  if (request.has_target_text()) out.target_text = std::move(*request.mutable_target_text());
  if (request.has_target_token_ids()) {
    for (int32_t id : request.target_token_ids().ids()) out.engine.target.push_back(TokenId(id));
    if (out.engine.target.empty()) errors.Add("target_token_ids", "empty, at least one token is needed");
  }
  out.engine.fidelity = TranslateFidelity(request.fidelity(), errors);
  out.engine.top_logprobs = request.top_logprobs();
  out.engine.priority = TranslatePriority(request.priority(), errors);
  MOED_RETURN_IF_ERROR(errors.ToStatus());
  return out;
}

}  // namespace moed
