#include "server/rpc/engine_call.h"

#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/utf8.h"
#include "server/rpc/error_details.h"

namespace moed {
namespace {

constexpr size_t kMaxIdBytes = 128;

std::string MakeUpId() {
  thread_local std::mt19937_64 random(std::random_device{}());
  return absl::StrFormat("%016x", random());
}

}  // namespace

absl::Status CheckReady(const ServerState& state, RequestMetrics& metrics) {
  if (state.draining()) {
    metrics.CountRejected(Rejection::kDraining);
    return absl::UnavailableError("the server is draining: it ends soon and takes no new requests");
  }
  if (state.loaded() == nullptr) {
    metrics.CountRejected(Rejection::kNotReady);
    return WithRetryAfter(absl::UnavailableError("the server is starting: the model is not loaded yet"), 1);
  }
  return absl::OkStatus();
}

EngineCall::EngineCall(const CallEnvironment& environment, Method method)
    : environment_(environment), method_(method), arrival_nanos_(environment.clock.NowNanos()) {
  record_.method = method;
}

void EngineCall::Start(absl::StatusOr<PendingRequest> translated) {
  environment_.live.Add(shared_from_this());
  if (translated.ok()) {
    if (translated->engine.name.empty()) translated->engine.name = MakeUpId();
    if (translated->engine.name.size() <= kMaxIdBytes) record_.id = translated->engine.name;
  }
  if (absl::Status ready = CheckReady(environment_.state, environment_.metrics); !ready.ok()) return Reject(ready, std::nullopt);
  model_ = environment_.state.loaded();
  if (!translated.ok()) return Reject(translated.status(), std::nullopt);
  PendingRequest request = *std::move(translated);
  const size_t bytes = request.prompt_bytes();
  if (bytes > environment_.limits.max_prompt_bytes) {
    return Reject(
        FieldError(request.prompt_field(), bytes, " bytes, at most ", environment_.limits.max_prompt_bytes, " are allowed"),
        Rejection::kTooLarge);
  }
  record_.session_id = request.engine.session_id;
  request.engine.arrival_nanos = arrival_nanos_;
  auto job = [self = shared_from_this(), request = std::make_shared<PendingRequest>(std::move(request))] {
    self->Prepare(std::move(*request));
  };
  if (!environment_.workers.Submit(bytes, std::move(job))) {
    Reject(ResourceExhausted("the queue is full: too many prompts wait to be tokenised"), Rejection::kQueueFull);
  }
}

absl::Status EngineCall::Tokenize(PendingRequest& request) {
  EngineRequest& engine_request = request.engine;
  if (!engine_request.session_id.empty())
    engine_request.continues_session = model_->engine->HasSession(engine_request.session_id);
  if (!request.is_text) return absl::OkStatus();
  const EncodeOptions options{.add_special_tokens = request.add_special_tokens.value_or(!engine_request.continues_session),
                              .parse_special_tokens = request.parse_special_tokens};
  auto tokens = model_->tokenizer->Encode(request.text, options);
  if (!tokens.ok())
    return FieldError("text", std::string_view(tokens.status().message().data(), tokens.status().message().size()));
  if (tokens->empty()) return FieldError("text", "gives no token, at least one is needed");
  engine_request.prompt = *std::move(tokens);
  request.text = std::string();
  return absl::OkStatus();
}

void EngineCall::Prepare(PendingRequest request) {
  bool admitted = false;
  try {
    admitted = Admit(std::move(request));
  } catch (const std::exception& error) {
    return Reject(Internal("the request could not be prepared: ", error.what()), std::nullopt);
  }
  if (admitted) Guarded([this] { Announce(); });
}

// False: the call has ended. True: the engine has it and will call OnFinish.
bool EngineCall::Admit(PendingRequest request) {
  const auto reject = [this](absl::Status status, std::optional<Rejection> rejection) {
    Reject(std::move(status), rejection);
    return false;
  };
  {
    absl::MutexLock lock(&mutex_);
    if (cancellation_.has_value()) {
      Account(cancellation_->status);
      return false;
    }
  }
  if (absl::Status status = Tokenize(request); !status.ok()) return reject(std::move(status), std::nullopt);
  EngineRequest& engine_request = request.engine;
  const EngineLimits& limits = model_->engine->limits();
  const size_t room = static_cast<size_t>(limits.max_context) - (engine_request.kind == RequestKind::kGenerate ? 1 : 0);
  if (engine_request.prompt.size() > room) {
    return reject(FieldError(request.prompt_field(), engine_request.prompt.size(), " tokens are too many: a context of ",
                             limits.max_context, " tokens leaves room for ", room),
                  Rejection::kTooLarge);
  }
  if (request.return_prompt_tokens || engine_request.kind == RequestKind::kScore) prompt_ = engine_request.prompt;
  wants_logprobs_ = engine_request.logprobs;
  queue_position_ = model_->engine->Stats().waiting;
  auto id = model_->engine->Submit(std::move(engine_request), shared_from_this());
  if (!id.ok()) {
    std::optional<Rejection> rejection;
    if (absl::IsResourceExhausted(id.status())) rejection = Rejection::kQueueFull;
    if (absl::IsUnavailable(id.status())) rejection = Rejection::kDraining;
    return reject(id.status(), rejection);
  }
  absl::MutexLock lock(&mutex_);
  engine_id_ = *id;
  return true;
}

void EngineCall::Announce() {
  std::optional<absl::Status> cancelled;
  RequestId id;
  {
    absl::MutexLock lock(&mutex_);
    id = *engine_id_;
    if (cancellation_.has_value()) cancelled = cancellation_->status;
  }
  if (cancelled.has_value()) {
    model_->engine->Cancel(id, *cancelled);
  } else {
    Open();
  }
}

void EngineCall::Reject(absl::Status status, std::optional<Rejection> rejection) {
  if (rejection.has_value()) environment_.metrics.CountRejected(*rejection);
  Account(status);
  Fail(status);
}

void EngineCall::Cancel(absl::Status status) {
  const EndReason reason = absl::IsDeadlineExceeded(status) ? EndReason::kDeadline : EndReason::kCancelled;
  CancelAs(reason, std::move(status));
}

void EngineCall::CancelSlow() {
  CancelAs(EndReason::kSlowClient, absl::CancelledError("the client reads too slowly"));
  Abandon();
}

void EngineCall::CancelAs(EndReason reason, absl::Status status) {
  if (!Claim(reason, status)) return;
  StopEngine(status);
  Fail(status);
}

// The reason first: gRPC may report a cancellation as soon as the call has failed. Then the client: it must not wait, whatever
// else breaks.
void EngineCall::EndBroken(const std::exception& error) {
  const absl::Status status = Internal("the request failed: ", error.what());
  const bool claimed = Claim(EndReason::kError, status);
  Fail(status);
  if (claimed) StopEngine(status);
}

bool EngineCall::Claim(EndReason reason, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (cancellation_.has_value()) return false;
  cancellation_ = Cancellation{reason, status, environment_.clock.NowNanos()};
  return true;
}

void EngineCall::StopEngine(const absl::Status& status) {
  std::optional<RequestId> id;
  {
    absl::MutexLock lock(&mutex_);
    id = engine_id_;
  }
  if (id.has_value()) model_->engine->Cancel(*id, status);
}

void EngineCall::CheckStalled() {
  if (Stalled()) CancelSlow();
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
    environment_.metrics.ObserveInterToken(SecondsBetween(*last_tokens_nanos_, now) / static_cast<double>(delta.tokens.size()));
  }
  last_tokens_nanos_ = now;
  if (!IsValidUtf8(delta.text)) {
    return CancelAs(EndReason::kError, absl::InternalError("the engine gave text that is not UTF-8"));
  }
  if (Push(delta) == PushResult::kTooSlow) CancelSlow();
}

void EngineCall::OnFinish(const FinishInfo& finish) {
  std::optional<Cancellation> cancellation;
  {
    absl::MutexLock lock(&mutex_);
    cancellation = cancellation_;
  }
  // A client that was told of an error was told so, even if the engine had completed the answer meanwhile.
  const bool broken = cancellation.has_value() && cancellation->reason == EndReason::kError;
  const bool cancelled = broken || (cancellation.has_value() && !finish.status.ok());
  const absl::Status& status = broken ? cancellation->status : finish.status;
  record_.admitted = true;
  record_.finish = finish;
  record_.reason = cancelled ? cancellation->reason : EndReasonOf(finish);
  if (cancelled) environment_.metrics.ObserveCancelToIdle(SecondsBetween(cancellation->nanos, environment_.clock.NowNanos()));
  if (method_ != Method::kScore) environment_.metrics.ObserveFinish(record_.reason, finish);
  Account(status);
  Guarded([&] { status.ok() ? Complete(finish) : Fail(status); });
}

void EngineCall::Send() {
  Guarded([this] { SendNow(); });
}

void EngineCall::Account(absl::Status status) {
  environment_.metrics.CountEnd(method_, status.code());
  record_.status = std::move(status);
  environment_.log.Write(record_);
}

void LiveCalls::Add(const std::shared_ptr<EngineCall>& call) {
  absl::MutexLock lock(&mutex_);
  calls_.emplace(call.get(), call);
}

void LiveCalls::Remove(EngineCall* call) {
  absl::MutexLock lock(&mutex_);
  calls_.erase(call);
}

int LiveCalls::size() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(calls_.size());
}

bool LiveCalls::WaitUntilNone(absl::Duration limit) {
  absl::MutexLock lock(&mutex_);
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.empty(); };
  return mutex_.AwaitWithTimeout(absl::Condition(&none), limit);
}

void LiveCalls::CheckStalled() {
  std::vector<std::shared_ptr<EngineCall>> calls;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [pointer, call] : calls_) {
      if (auto locked = call.lock()) calls.push_back(std::move(locked));
    }
  }
  for (const auto& call : calls) call->CheckStalled();
}

}  // namespace moed
