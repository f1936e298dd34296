#include "core/engine/intake.h"

#include <iterator>
#include <utility>

#include "core/base/status.h"
#include "core/engine/request_check.h"

namespace moed {
namespace {

// Tenants do not share names.
std::string NameOf(const EngineRequest& request) {
  return request.tenant.empty() ? request.name : StrCat(request.tenant, "/", request.name);
}

}  // namespace

absl::StatusOr<RequestId> Intake::Submit(
    const EngineRequest& request, const EngineLimits& limits,
    absl::FunctionRef<std::unique_ptr<LiveRequest>(RequestId, std::unique_ptr<Sequence>&)> build) {
  absl::MutexLock lock(&mutex_);
  const size_t owner = tenants_.Know(request.tenant, request.tenant_limits);
  const std::string name = NameOf(request);
  const std::string session = request.session_id;  // `build` may have taken the request apart when it throws
  if (const absl::Status admitted = admission_.Check(name, session); !admitted.ok()) {
    if (absl::IsResourceExhausted(admitted)) tenants_.CountRefused(owner);
    return admitted;
  }
  const Sequence* known = sessions_.Find(session);
  const auto held = known == nullptr ? std::nullopt : std::optional<int>(static_cast<int>(known->tokens.size()));
  MOED_RETURN_IF_ERROR(CheckSession(request, limits, held));
  MOED_RETURN_IF_ERROR(tenants_.Check(owner, request.arrival_nanos));

  std::unique_ptr<Sequence> sequence = sessions_.Take(session);
  if (sequence == nullptr) {
    sequence = std::make_unique<Sequence>();
    sequence->id = SequenceId(++last_sequence_);
    sequence->session = session;
  }
  sequence->owner = owner;
  const auto prompt_tokens = static_cast<int>(request.prompt.size());
  const Priority priority = request.priority;  // likewise
  RequestId id;
  try {
    sequence->Begin(request.prompt, request.whole_prompt);
    incoming_.reserve(incoming_.size() + 1);
    id = admission_.Admit(name, request.tenant, session);
    incoming_.push_back(build(id, sequence));
    incoming_.back()->owner = owner;
    incoming_.back()->charged_tokens = prompt_tokens;
  } catch (...) {
    admission_.Release(id, name, session);
    sequence->TakeBack();
    if (known != nullptr) sessions_.Keep(std::move(sequence));
    throw;
  }
  tenants_.Admit(owner, priority, prompt_tokens);
  ++unfinished_;
  wake_.Notify();
  return id;
}

bool Intake::Cancel(RequestId id, absl::Status status) {
  absl::MutexLock lock(&mutex_);
  if (!admission_.live(id)) return false;
  cancellations_.emplace(id, std::move(status));
  wake_.Notify();
  return true;
}

std::optional<RequestId> Intake::Find(const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  return admission_.Find(name);
}

bool Intake::HasSession(const std::string& session) const {
  absl::MutexLock lock(&mutex_);
  return sessions_.Find(session) != nullptr || admission_.busy(session);
}

absl::Status Intake::DeleteSession(const std::string& session) {
  absl::MutexLock lock(&mutex_);
  if (admission_.busy(session)) return absl::AbortedError(StrCat("session_id: \"", session, "\" is being answered"));
  if (sessions_.Find(session) == nullptr) return NotFound("session_id: \"", session, "\" is not kept here");
  deleted_.reserve(deleted_.size() + 1);
  deleted_.push_back(sessions_.Take(session));
  wake_.Notify();
  return absl::OkStatus();
}

std::vector<SessionInfo> Intake::ListSessions(size_t most) const {
  absl::MutexLock lock(&mutex_);
  std::vector<SessionInfo> sessions;
  admission_.ListBusy(most, sessions);
  sessions_.List(most, sessions);
  return sessions;
}

absl::Status Intake::Post(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (stop_reason_) return absl::UnavailableError("the server is stopping");
  tasks_.push_back(std::move(task));
  wake_.Notify();
  return absl::OkStatus();
}

void Intake::Close(absl::Status reason) {
  absl::MutexLock lock(&mutex_);
  admission_.Close(std::move(reason));
}

void Intake::Stop(absl::Status reason) {
  absl::MutexLock lock(&mutex_);
  admission_.Close(absl::UnavailableError("the server is stopping"));
  if (!stop_reason_) stop_reason_ = std::move(reason);
  wake_.Notify();
}

bool Intake::Idle() const {
  absl::MutexLock lock(&mutex_);
  return unfinished_ == 0;
}

int Intake::live() const {
  absl::MutexLock lock(&mutex_);
  return admission_.live_requests();
}

int Intake::sessions() const {
  absl::MutexLock lock(&mutex_);
  return sessions_.size() + admission_.busy_sessions();
}

std::optional<absl::Status> Intake::stop_reason() const {
  absl::MutexLock lock(&mutex_);
  return stop_reason_;
}

void Intake::WaitForWork(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  wake_.For(mutex_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return HasWork(); });
  woken_ = false;
}

void Intake::Wake() {
  absl::MutexLock lock(&mutex_);
  woken_ = true;
  wake_.Notify();
}

void Intake::WaitForStop(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  wake_.For(mutex_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Stopping(); });
}

void Intake::Receive(std::vector<std::unique_ptr<LiveRequest>>& requests, Cancellations& cancellations) {
  absl::MutexLock lock(&mutex_);
  std::move(incoming_.begin(), incoming_.end(), std::back_inserter(requests));
  incoming_.clear();
  for (auto& [id, status] : cancellations_) cancellations.emplace(id, std::move(status));
  cancellations_.clear();
}

std::vector<std::unique_ptr<Sequence>> Intake::TakeDeleted() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(deleted_, {});
}

std::vector<std::function<void()>> Intake::TakeTasks() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(tasks_, {});
}

std::optional<absl::Status> Intake::Interruptions(Cancellations& cancellations) {
  absl::MutexLock lock(&mutex_);
  for (auto& [id, status] : cancellations_) cancellations.emplace(id, std::move(status));
  cancellations_.clear();
  return stop_reason_;
}

std::vector<TenantInfo> Intake::ListTenants() const {
  absl::MutexLock lock(&mutex_);
  return tenants_.List();
}

Intake::Standing Intake::StandingOf(const std::string& tenant, Priority priority) const {
  absl::MutexLock lock(&mutex_);
  const size_t owner = tenants_.Find(tenant);
  const int position = tenants_.Position(owner, priority);
  return {position, position >= tenants_.Room(owner)};
}

void Intake::SetRunning(std::span<const CountsByPriority> by_owner) {
  absl::MutexLock lock(&mutex_);
  tenants_.SetRunning(by_owner);
}

void Intake::CountGenerated(size_t owner, int tokens) {
  absl::MutexLock lock(&mutex_);
  tenants_.CountGenerated(owner, tokens);
}

void Intake::VisitIdle(absl::FunctionRef<bool(Sequence&)> visit) {
  absl::MutexLock lock(&mutex_);
  sessions_.Visit(visit);
}

std::unique_ptr<Sequence> Intake::Release(const LiveRequest& live, std::unique_ptr<Sequence> kept) {
  absl::MutexLock lock(&mutex_);
  admission_.Release(live.id, NameOf(live.request), live.request.session_id);
  tenants_.Release(live.owner, live.request.priority, live.charged_tokens, live.started);
  cancellations_.erase(live.id);
  return kept == nullptr ? nullptr : sessions_.Keep(std::move(kept));
}

void Intake::Finished() {
  absl::MutexLock lock(&mutex_);
  --unfinished_;
}

std::unique_ptr<Sequence> Intake::TakeOldestSession() {
  absl::MutexLock lock(&mutex_);
  return sessions_.TakeOldest();
}

}  // namespace moed
