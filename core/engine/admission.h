// Who may come in: names, busy sessions and the number of live requests. The same rules for every engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/engine/engine.h"

namespace moed {

// Not synchronised: its engine's mutex guards it.
class Admission {
 public:
  // `capacity`: live requests at most, running and waiting.
  explicit Admission(int capacity) : capacity_(capacity) {}

  // `name` of a request is "TENANT/NAME" where it has a tenant. ABORTED, ALREADY_EXISTS, RESOURCE_EXHAUSTED, UNAVAILABLE as
  // Engine::Submit says. "" = no session.
  absl::Status Check(const std::string& name, const std::string& session) const;
  // After an OK Check; when it throws nobody came in. "" = no tenant.
  RequestId Admit(const std::string& name, const std::string& tenant, const std::string& session);
  void Release(RequestId id, const std::string& name, const std::string& session);

  // No one comes in any more; the first reason stays.
  void Close(absl::Status reason);

  // By the name; or where none has it, by what follows a tenant's "TENANT/", if that is of one alone.
  std::optional<RequestId> Find(const std::string& name) const;
  bool live(RequestId id) const { return ids_.contains(id); }
  bool busy(const std::string& session) const { return busy_sessions_.contains(session); }
  // The first `most`, by name.
  void ListBusy(size_t most, std::vector<SessionInfo>& out) const;
  int busy_sessions() const { return static_cast<int>(busy_sessions_.size()); }
  int live_requests() const { return static_cast<int>(ids_.size()); }

 private:
  struct Named {
    RequestId id;
    size_t tenant_bytes = 0;  // of the name, before the "/"; 0: it has no tenant
  };

  const int capacity_;
  absl::Status closed_;
  uint64_t last_id_ = 0;
  // Not Abseil's tables, which are broken once memory ran out as they grew.
  std::map<std::string, Named> names_;
  std::set<RequestId> ids_;
  std::set<std::string> busy_sessions_;
};

}  // namespace moed
