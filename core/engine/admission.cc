#include "core/engine/admission.h"

#include <string_view>
#include <utility>

#include "core/base/status.h"

namespace moed {

absl::Status Admission::Check(const std::string& name, const std::string& session) const {
  if (!closed_.ok()) return closed_;
  if (names_.contains(name)) return absl::AlreadyExistsError(StrCat("request_id: \"", name, "\" is the name of a live request"));
  if (busy(session)) return absl::AbortedError(StrCat("session_id: \"", session, "\" is being answered"));
  if (static_cast<int>(ids_.size()) >= capacity_) {
    return ResourceExhausted("the queue is full: ", ids_.size(), " requests are live, at most ", capacity_, " may be");
  }
  return absl::OkStatus();
}

RequestId Admission::Admit(const std::string& name, const std::string& tenant, const std::string& session) {
  const RequestId id(++last_id_);
  try {
    ids_.insert(id);
    names_.emplace(name, Named{id, tenant.size()});
    if (!session.empty()) busy_sessions_.insert(session);
  } catch (...) {
    Release(id, name, session);
    throw;
  }
  return id;
}

void Admission::Release(RequestId id, const std::string& name, const std::string& session) {
  ids_.erase(id);
  names_.erase(name);
  busy_sessions_.erase(session);
}

void Admission::Close(absl::Status reason) {
  if (closed_.ok()) closed_ = std::move(reason);
}

void Admission::ListBusy(size_t most, std::vector<SessionInfo>& out) const {
  for (auto session = busy_sessions_.begin(); session != busy_sessions_.end() && out.size() < most; ++session) {
    out.push_back({.name = *session, .busy = true});
  }
}

std::optional<RequestId> Admission::Find(const std::string& name) const {
  if (const auto found = names_.find(name); found != names_.end()) return found->second.id;
  std::optional<RequestId> only;
  for (const auto& [known, named] : names_) {
    if (named.tenant_bytes == 0 || std::string_view(known).substr(named.tenant_bytes + 1) != name) continue;
    if (only) return std::nullopt;
    only = named.id;
  }
  return only;
}

}  // namespace moed
