#include "server/rpc/call.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "core/base/retry_after.h"
#include "core/base/status.h"
#include "core/base/tenant_limits.h"
#include "server/wire/error_details.h"

namespace moed {
namespace {

std::string MakeUpId() {
  thread_local std::mt19937_64 random(std::random_device{}());
  return absl::StrFormat("%016x", random());
}

}  // namespace

absl::Status CheckReady(const ServerState& state, RequestMetrics& metrics) {
  if (state.refusing()) {
    metrics.CountRejected(Rejection::kDraining);
    return absl::UnavailableError("the server is draining: it takes no new requests");
  }
  const absl::Status loaded = state.CheckLoaded();
  if (!loaded.ok()) metrics.CountRejected(Rejection::kNotReady);
  return loaded;
}

Call::Call(const CallEnvironment& environment, Method method, WorkKind kind)
    : environment_(environment),
      method_(method),
      arrival_nanos_(environment.clock.NowNanos()),
      model_(environment.state.loaded()),
      kind_(kind) {
  record_.method = method;
}

void Call::Begin(absl::Status fits, std::string id, size_t bytes, std::function<void()> work) {
  environment_.live.Add(shared_from_this());
  const auto most = static_cast<size_t>(limits().request.name_bytes);
  if (id.size() > most) {
    fits.Update(TooMuch(FieldError("request_id", id.size(), " bytes, at most ", most, " are allowed")));
    id.clear();
  }
  record_.id = id.empty() ? MakeUpId() : std::move(id);
  if (absl::Status ready = CheckReady(environment_.state, environment_.metrics); !ready.ok()) return Reject(ready, std::nullopt);
  if (model_ == nullptr)
    return Reject(WithRetryAfter(absl::UnavailableError("the model was being loaded"), 1), Rejection::kNotReady);
  if (!fits.ok()) return Reject(fits, IsTooMuch(fits) ? std::optional(Rejection::kTooLarge) : std::nullopt);
  auto job = [self = shared_from_this(), work = std::move(work)] { self->Work(work); };
  if (!environment_.workers.Submit(kind_, bytes, std::move(job))) {
    Reject(RetryAfter(ResourceExhausted("the queue is full: too many texts wait to be tokenised"), kRetrySeconds),
           Rejection::kQueueFull);
  }
}

void Call::Refuse(const absl::Status& status) {
  environment_.live.Add(shared_from_this());
  record_.id = MakeUpId();
  Reject(status, IsTenantLimit(status) ? std::optional(Rejection::kTenantLimit) : std::nullopt);
}

void Call::Work(const std::function<void()>& work) {
  if (const auto cancelled = cancellation()) return Account(cancelled->status);
  try {
    work();
  } catch (const std::exception& error) {
    Reject(Internal("the request could not be prepared: ", error.what()), std::nullopt);
  }
}

void Call::Reject(absl::Status status, std::optional<Rejection> rejection) {
  if (rejection.has_value()) environment_.metrics.CountRejected(*rejection);
  Account(status);
  Fail(ForClient(status));
}

absl::Status Call::ForClient(const absl::Status& status) const {
  if (tenant().empty()) return status;
  std::vector<std::pair<std::string, std::string>> names;
  for (const std::string& name : {record_.session_id, SessionOf(tenant(), record_.id)}) {
    if (!name.empty()) names.emplace_back(StrCat("\"", name, "\""), StrCat("\"", name.substr(tenant().size() + 1), "\""));
  }
  absl::Status told(status.code(), absl::StrReplaceAll(status.message(), names));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& value) { told.SetPayload(type, value); });
  return told;
}

void Call::RejectPrivately(const absl::Status& status, std::string_view logged) {
  Account(absl::Status(status.code(), absl::string_view(logged.data(), logged.size())));
  Fail(status);
}

void Call::Cancel(absl::Status status) {
  const EndReason reason = absl::IsDeadlineExceeded(status) ? EndReason::kDeadline : EndReason::kCancelled;
  CancelAs(reason, std::move(status));
}

void Call::CancelSlow() {
  CancelAs(EndReason::kSlowClient, absl::CancelledError("the client reads too slowly"));
  Abandon();
}

void Call::CancelAs(EndReason reason, absl::Status status) {
  if (!Claim(reason, status)) return;
  StopWork(status);
  Fail(status);
}

// The reason first: gRPC may report a cancellation as soon as the call has failed. Then the client: it must not wait, whatever
// else breaks.
void Call::EndBroken(const std::exception& error) {
  const absl::Status status = Internal("the request failed: ", error.what());
  const bool claimed = Claim(EndReason::kError, status);
  Fail(status);
  if (claimed) StopWork(status);
}

bool Call::Claim(EndReason reason, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (cancellation_.has_value()) return false;
  cancellation_ = Cancellation{reason, status, environment_.clock.NowNanos()};
  return true;
}

std::optional<Call::Cancellation> Call::cancellation() const {
  absl::MutexLock lock(&mutex_);
  return cancellation_;
}

void Call::CheckStalled() {
  if (Stalled()) CancelSlow();
}

void Call::AbandonSoon() {
  abandon_due_ = true;
  SendLater();
}

void Call::Send() {
  if (abandon_due_.exchange(false)) Abandon();
  Guarded([this] { SendNow(); });
}

void Call::Account(absl::Status status) {
  environment_.metrics.CountEnd(method_, status.code());
  record_.status = std::move(status);
  record_.duration_seconds = SecondsBetween(arrival_nanos_, environment_.clock.NowNanos());
  environment_.log.Write(record_);
}

void LiveCalls::Add(const std::shared_ptr<Call>& call) {
  absl::MutexLock lock(&mutex_);
  calls_[call.get()].call = call;
}

bool LiveCalls::TakeName(Call* call, std::string name, bool wishes) {
  absl::MutexLock lock(&mutex_);
  if (wishes && names_.contains(name)) return false;
  Entry& entry = calls_[call];
  entry.name = *names_.insert(std::move(name));
  return true;
}

void LiveCalls::Remove(Call* call) {
  absl::MutexLock lock(&mutex_);
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  untaken_bytes_ -= found->second.untaken_bytes;
  if (const auto name = names_.find(found->second.name); name != names_.end()) names_.erase(name);
  if (found->second.untaken_bytes > 0) answered_.remove(call);
  calls_.erase(found);
  removed_.Notify();
}

void LiveCalls::OnAnswered(Call* call, size_t bytes) {
  std::vector<std::shared_ptr<Call>> abandoned;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = calls_.find(call);
    if (found == calls_.end() || bytes == 0) return;
    found->second.untaken_bytes = bytes;
    untaken_bytes_ += bytes;
    answered_.push_back(call);
    while (untaken_bytes_ > max_untaken_bytes_ && answered_.size() > 1) {
      Entry& oldest = calls_[answered_.front()];
      answered_.pop_front();
      untaken_bytes_ -= std::exchange(oldest.untaken_bytes, 0);
      if (auto locked = oldest.call.lock()) abandoned.push_back(std::move(locked));
    }
  }
  for (const auto& victim : abandoned) victim->AbandonSoon();
}

int LiveCalls::size() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(calls_.size());
}

bool LiveCalls::WaitUntilNone(absl::Duration limit) {
  absl::MutexLock lock(&mutex_);
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.empty(); };
  return removed_.For(mutex_, limit, none);
}

void LiveCalls::SetMaxUntakenBytes(size_t bytes) {
  absl::MutexLock lock(&mutex_);
  max_untaken_bytes_ = bytes;
}

std::vector<std::shared_ptr<Call>> LiveCalls::Calls() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Call>> calls;
  for (const auto& [pointer, entry] : calls_) {
    if (auto locked = entry.call.lock()) calls.push_back(std::move(locked));
  }
  return calls;
}

void LiveCalls::CheckStalled() {
  for (const auto& call : Calls()) call->CheckStalled();
}

void LiveCalls::AbandonCallsTo(const LoadedModel* model) {
  for (const auto& call : Calls()) {
    if (call->model() == model) call->AbandonSoon();
  }
}

std::vector<std::string> LiveCalls::PeersOfCallsTo(const LoadedModel* model) const {
  std::vector<std::string> peers;
  for (const auto& call : Calls()) {
    if (call->model() == model) peers.push_back(call->peer());
  }
  return peers;
}

}  // namespace moed
