#include "server/rpc/engine_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "core/base/lost_device.h"
#include "core/base/retry_after.h"
#include "core/base/status.h"
#include "core/base/tenant_limits.h"
#include "core/base/utf8.h"
#include "core/chat/answer/tool_schemas.h"
#include "core/grammar/matcher_pool.h"
#include "server/rpc/chat_translation.h"
#include "server/wire/error_details.h"

namespace moed {
namespace {

// Of a status whose words begin with the field that they are about.
absl::Status NamedFieldError(const absl::Status& status) {
  const std::string_view message(status.message().data(), status.message().size());
  const size_t colon = message.find(": ");
  return FieldError(std::string(message.substr(0, colon)), message.substr(colon + 2));
}

// What the engine refuses for want of room it may take later, whether or not it says when.
absl::Status WithRetry(const absl::Status& refusal) {
  if (!absl::IsResourceExhausted(refusal) || RetryAfterOf(refusal)) return refusal;
  return RetryAfter(refusal, kRetrySeconds);
}

std::optional<Rejection> WhyRefused(const absl::Status& refusal) {
  if (IsTenantLimit(refusal)) return Rejection::kTenantLimit;
  if (absl::IsResourceExhausted(refusal)) return Rejection::kQueueFull;
  if (absl::IsUnavailable(refusal)) return Rejection::kDraining;
  return std::nullopt;
}

}  // namespace

void EngineCall::Start(Arrival<PendingRequest> arrival) {
  auto self = std::static_pointer_cast<EngineCall>(shared_from_this());
  record_.session_id = SessionOf(tenant(), std::move(arrival.session_id).value_or(""));
  Begin(arrival.fits, arrival.id, arrival.bytes, [self, read = std::move(arrival.read)] {
    if (self->Admit(read(*self->model_))) self->Guarded([&] { self->Announce(); });
  });
}

absl::Status EngineCall::HoldTools(const PendingRequest::Conversation& conversation) {
  const size_t bytes = chat::ToolSchemas::BytesOf(conversation.tools);
  tool_schemas_ = model_->tool_schemas->Take(bytes);
  if (tool_schemas_) return absl::OkStatus();
  return RetryAfter(
      ResourceExhausted("tools: names of functions and parameters take ", bytes, " bytes, of which other requests leave ",
                        model_->tool_schemas->left(), "; try again when they have ended"),
      kRetrySeconds);
}

absl::Status EngineCall::Render(PendingRequest& request) {
  PendingRequest::Conversation conversation = *std::exchange(request.conversation, PendingRequest::Conversation());
  auto text = RenderConversation(conversation, *model_, limits().request, [this] { return cancellation().has_value(); });
  if (const auto cancelled = cancellation()) return cancelled->status;
  MOED_RETURN_IF_ERROR(text.status());
  const chat::AnswerFormat& form = *model_->answer_format;
  const bool opened = chat::OpensReasoning(form, text->text);
  if (request.rules) {
    constexpr size_t kMostMarkerBytes = 64;
    const absl::string_view end = absl::StripTrailingAsciiWhitespace(text->text);
    request.rules->reasoning_open = opened;
    request.rules->prompt_end = std::string(end.substr(end.size() - std::min(end.size(), kMostMarkerBytes)));
  }
  TakeParser(form.make({.reasoning_open = opened, .tools = std::move(conversation.tools)}), conversation.skip_special_tokens);
  request.is_text = true;
  request.text = std::move(text->text);
  request.foreign = std::move(text->foreign);
  return absl::OkStatus();
}

// A text stops being tokenised where it has become longer than the context: OUT_OF_RANGE.
absl::StatusOr<std::vector<TokenId>> EngineCall::Encode(const char* field, const std::string& text, EncodeOptions options) const {
  options.max_tokens = static_cast<size_t>(model_->engine->limits().max_context);
  options.max_word_bytes = limits().request.word_bytes;
  auto tokens = model_->tokenizer->Encode(text, options);
  if (absl::IsOutOfRange(tokens.status())) return tokens.status();
  if (!tokens.ok()) return FieldError(field, tokens.status().message());
  if (tokens->empty()) return FieldError(field, "gives no token, at least one is needed");
  return tokens;
}

absl::Status EngineCall::Tokenize(PendingRequest& request) {
  EngineRequest& engine_request = request.engine;
  if (!engine_request.session_id.empty() && !engine_request.whole_prompt)
    engine_request.continues_session = model_->engine->HasSession(engine_request.session_id);
  if (!request.is_text) return absl::OkStatus();
  EncodeOptions options{.add_special_tokens = request.add_special_tokens.value_or(!engine_request.continues_session),
                        .parse_special_tokens = request.parse_special_tokens,
                        .foreign = request.foreign};
  MOED_ASSIGN_OR_RETURN(engine_request.prompt, Encode(request.prompt_field(), request.text, options));
  request.text = std::string();
  return absl::OkStatus();
}

// A decoder's text of its own has special tokens of its own; what goes on behind a prefix has not.
absl::Status EngineCall::TokenizeTarget(PendingRequest& request) {
  if (!request.target_text) return absl::OkStatus();
  constexpr const char* kField = "target_text";
  const EngineLimits& limits = model_->engine->limits();
  auto tokens = Encode(kField, *request.target_text,
                       {.add_special_tokens = limits.encodes && request.add_special_tokens.value_or(true),
                        .parse_special_tokens = request.parse_special_tokens});
  request.target_text.reset();
  if (absl::IsOutOfRange(tokens.status())) {
    return FieldError(kField, "more than ", limits.max_context, " tokens are too many: no context holds them");
  }
  MOED_ASSIGN_OR_RETURN(request.engine.target, std::move(tokens));
  return absl::OkStatus();
}

absl::Status EngineCall::CompileFormat(PendingRequest& request) {
  const auto prompt_tokens = static_cast<int>(request.engine.prompt.size());
  const int most_tokens = model_->engine->limits().MostNewTokens(request.engine.stopping.max_new_tokens, prompt_tokens);
  const auto make = [&]() -> absl::Status {
    if (request.rules) {
      MOED_ASSIGN_OR_RETURN(request.format, model_->answer_format->hold(*request.rules));
      if (request.format->field.empty()) request.format->field = "tools";
    }
    if (!request.format) return absl::OkStatus();
    MOED_ASSIGN_OR_RETURN(request.engine.format, model_->formats->Make(*request.format, std::max(most_tokens, 1)));
    return absl::OkStatus();
  };
  if (request.rules) request.rules->text = std::exchange(request.format, std::nullopt);
  absl::Status made = make();
  if (absl::IsInvalidArgument(made) && request.rules && request.rules->Loosen()) made = make();
  if (!made.ok()) return absl::IsInvalidArgument(made) ? NamedFieldError(made) : made;
  request.rules.reset();
  request.format.reset();
  return absl::OkStatus();
}

// False: the call has ended. True: the engine has it and will call OnFinish.
bool EngineCall::Admit(absl::StatusOr<PendingRequest> read) {
  const auto reject = [this](absl::Status status, std::optional<Rejection> rejection = std::nullopt) {
    Reject(std::move(status), rejection);
    return false;
  };
  if (!read.ok()) return reject(read.status());
  PendingRequest request = *std::move(read);
  EngineRequest& engine_request = request.engine;
  engine_request.session_id = SessionOf(tenant(), engine_request.session_id);
  engine_request.tenant = tenant();
  if (environment_.tokens != nullptr) engine_request.tenant_limits = environment_.tokens->LimitsOf(tenant());
  const int max_context = model_->engine->limits().max_context;
  const size_t room = static_cast<size_t>(max_context) - (engine_request.kind == RequestKind::kGenerate ? 1 : 0);
  // `count`: where they were counted to their end.
  const auto reject_length = [&](std::string_view tokens, std::optional<size_t> count) {
    const absl::Status error = FieldError(request.prompt_field(), tokens, " tokens are too many: a context of ", max_context,
                                          " tokens leaves room for ", room);
    return reject(BeyondContext(error, max_context, count), Rejection::kTooLarge);
  };
  engine_request.name = record_.id;
  engine_request.arrival_nanos = arrival_nanos_;
  engine_request.deadline_nanos = deadline_nanos_;
  if (request.conversation) {
    if (const absl::Status held = HoldTools(*request.conversation); !held.ok()) return reject(held, Rejection::kQueueFull);
    if (const absl::Status rendered = Render(request); !rendered.ok()) {
      RejectPrivately(rendered, "messages: the chat template made no prompt of them");
      return false;
    }
  }
  const absl::Status tokenised = Tokenize(request);
  if (absl::IsOutOfRange(tokenised)) return reject_length(StrCat("more than ", max_context), std::nullopt);
  if (!tokenised.ok()) return reject(tokenised);
  if (const size_t tokens = engine_request.prompt.size(); tokens > room) return reject_length(StrCat(tokens), tokens);
  if (const absl::Status target = TokenizeTarget(request); !target.ok()) return reject(target);
  if (const absl::Status compiled = CompileFormat(request); !compiled.ok()) {
    RejectPrivately(compiled, "format: nothing that the server can hold an answer to");
    return false;
  }
  if (absl::Status fits = CheckAnswer(engine_request); !fits.ok()) return reject(std::move(fits), Rejection::kTooLarge);
  wants_prompt_tokens_ = request.return_prompt_tokens;
  wants_prompt_logprobs_ = engine_request.prompt_logprobs;
  generates_ = engine_request.kind == RequestKind::kGenerate;
  if (wants_prompt_tokens_ || wants_prompt_logprobs_ || !generates_) {
    prompt_ = engine_request.target.empty() ? engine_request.prompt : engine_request.target;
  }
  wants_logprobs_ = engine_request.logprobs;
  queue_ = model_->engine->EstimateQueue(tenant(), engine_request.priority, static_cast<int>(engine_request.prompt.size()));
  auto id = model_->engine->Submit(std::move(engine_request), std::static_pointer_cast<EngineCall>(shared_from_this()));
  if (!id.ok()) return reject(WithRetry(id.status()), WhyRefused(id.status()));
  absl::MutexLock lock(&engine_mutex_);
  engine_id_ = *id;
  return true;
}

// What cancels the call looks for the engine's id after it has written down that it does, so that one of the two sees the other.
void EngineCall::Announce() {
  if (const auto cancelled = cancellation()) return StopWork(cancelled->status);
  Open();
}

void EngineCall::StopWork(const absl::Status& status) {
  std::optional<RequestId> id;
  {
    absl::MutexLock lock(&engine_mutex_);
    id = engine_id_;
  }
  if (id.has_value()) model_->engine->Cancel(*id, status);
}

void EngineCall::OnStarted(int prompt_tokens, int cached_tokens) {
  prompt_tokens_ = prompt_tokens;
  cached_tokens_ = cached_tokens;
}

void EngineCall::OnTokens(TokenDelta delta) {
  Guarded([&] { Deliver(std::move(delta)); });
}

void EngineCall::Deliver(TokenDelta delta) {
  const int64_t now = environment_.clock.NowNanos();
  if (last_tokens_nanos_.has_value() && !delta.tokens.empty()) {
    environment_.metrics.ObserveInterToken(SecondsBetween(*last_tokens_nanos_, now), delta.tokens.size());
  }
  last_tokens_nanos_ = now;
  if (!IsValidUtf8(delta.text)) {
    return CancelAs(EndReason::kError, absl::InternalError("the engine gave text that is not UTF-8"));
  }
  switch (Push(std::move(delta))) {
    case PushResult::kTaken:
    case PushResult::kEnded:
      return;
    case PushResult::kTooSlow:
      return CancelSlow();
    case PushResult::kTooLarge:
      return CancelAs(EndReason::kError, ResourceExhausted("the answer takes more than the ", limits().max_answer_bytes,
                                                           " bytes that one message may: have it streamed, or ask for less"));
  }
}

void EngineCall::OnFinish(const FinishInfo& finish) {
  Guarded([&] { Finished(finish); });
}

void EngineCall::Finished(const FinishInfo& finish) {
  const std::optional<Cancellation> cancelling = cancellation();
  // A client that was told of an error, or cut off, was told so, even if the engine had completed the answer meanwhile.
  const bool told =
      cancelling.has_value() && (cancelling->reason == EndReason::kError || cancelling->reason == EndReason::kSlowClient);
  const bool cancelled = told || (cancelling.has_value() && !finish.status.ok());
  const absl::Status& status = told ? cancelling->status : finish.status;
  record_.admitted = true;
  record_.finish = finish;
  record_.reason = cancelled ? cancelling->reason : EndReasonOf(finish);
  if (cancelled) environment_.metrics.ObserveCancelToIdle(SecondsBetween(cancelling->nanos, environment_.clock.NowNanos()));
  if (method_ != Method::kScore) environment_.metrics.ObserveFinish(record_.reason, finish);
  Account(status);
  prompt_tokens_ = finish.prompt_tokens;  // of a request that never began to run, too
  cached_tokens_ = finish.cached_tokens;
  status.ok() ? Complete(finish) : Fail(status);
  if (IsLostDevice(finish.status) && model_->device_lost) model_->device_lost(finish.status);
}

}  // namespace moed
