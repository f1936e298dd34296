// What each tenant has in the engine, and whether it may have more.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/tenant_limits.h"
#include "core/engine/engine.h"

namespace moed {

using CountsByPriority = std::array<int, kPriorities>;  // [Priority], of requests

// Not synchronised: its engine's mutex guards it. Tenants are numbers from 0 on, which is nobody in particular ("") and has no
// limits; as many as names that tokens have had.
class TenantTable {
 public:
  // Of requests, of all tenants: computed at once, and live.
  TenantTable(int max_running, int capacity) : max_running_(max_running), capacity_(capacity), tenants_(1) {}

  // Its number; its limits are these from now on.
  size_t Know(const std::string& name, const TenantLimits& limits);
  size_t Find(const std::string& name) const;  // 0, which has nothing of its own either, where it was never here
  // RESOURCE_EXHAUSTED where the tenant has what it may have; with RetryAfterOf where that is known. Counts what is refused.
  //
  // A tenant with a name leaves room in the queue for others: what it has may be four times what is free at most (dynamic
  // thresholds, Choudhury and Hahne 1998).
  absl::Status Check(size_t owner, int64_t now_nanos);
  void CountRefused(size_t owner) { ++tenants_[owner].info.refused; }

  void Admit(size_t owner, Priority priority, int prompt_tokens);
  // Of one that ended. What nothing was computed for is given back.
  void Release(size_t owner, Priority priority, int prompt_tokens, bool started);
  void CountGenerated(size_t owner, int tokens);
  void SetRunning(std::span<const CountsByPriority> by_owner);

  // How many requests run before one that comes in now.
  int Position(size_t owner, Priority priority) const;
  // Places that are free, for a tenant that has its limits.
  int Room(size_t owner) const;
  std::vector<TenantInfo> List() const;  // by name

 private:
  struct Tenant {
    TenantInfo info;  // but for `waiting`
    int live = 0;
    CountsByPriority live_of = {};
    CountsByPriority running_of = {};
    double level = 0;  // tokens that it may still ask for; below 0: it has had more
    int64_t filled_nanos = 0;
  };
  using Owners = std::map<std::string, size_t>;  // as Admission's tables
  Owners::iterator Add(std::string name);
  static int OwnPosition(const Tenant& tenant, Priority priority);
  static int Waiting(const Tenant& tenant) { return tenant.live > tenant.info.running ? tenant.live - tenant.info.running : 0; }
  absl::Status CheckTokens(Tenant& tenant, int64_t now_nanos) const;
  void Spend(Tenant& tenant, int tokens) const;

  const int max_running_;
  const int capacity_;
  int live_ = 0;
  int running_ = 0;
  std::vector<Tenant> tenants_;  // [owner]
  Owners owners_;
};

}  // namespace moed
