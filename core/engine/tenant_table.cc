#include "core/engine/tenant_table.h"

#include <algorithm>
#include <utility>

#include "core/base/clock.h"
#include "core/base/retry_after.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr int64_t kShareOfFreeQueue = 4;

}  // namespace

size_t TenantTable::Know(const std::string& name, const TenantLimits& limits) {
  if (name.empty()) return 0;
  auto found = owners_.find(name);
  if (found == owners_.end()) found = Add(name);
  Tenant& tenant = tenants_[found->second];
  const auto& tokens = limits.tokens_per_minute;
  if (tokens) tenant.level = tenant.info.limits.tokens_per_minute ? std::min<double>(tenant.level, *tokens) : *tokens;
  tenant.info.limits = limits;
  return found->second;
}

// Where it throws neither has the name.
TenantTable::Owners::iterator TenantTable::Add(std::string name) {
  Tenant tenant;
  tenant.info.name = name;
  const auto added = owners_.emplace(std::move(name), tenants_.size()).first;
  try {
    tenants_.push_back(std::move(tenant));
  } catch (...) {
    owners_.erase(added);
    throw;
  }
  return added;
}

size_t TenantTable::Find(const std::string& name) const {
  const auto found = owners_.find(name);
  return found == owners_.end() ? 0 : found->second;
}

absl::Status TenantTable::Check(size_t owner, int64_t now_nanos) {
  Tenant& tenant = tenants_[owner];
  if (tenant.info.name.empty()) return absl::OkStatus();
  const TenantLimits& limits = tenant.info.limits;
  const int waiting = Waiting(tenant) + 1 - Room(owner);
  absl::Status status;
  if (limits.max_waiting && waiting > *limits.max_waiting) {
    status = TenantLimitReached(tenant.info.name, " has ", Waiting(tenant), " requests waiting, at most ", *limits.max_waiting,
                                " may (max-waiting)");
  } else if (waiting > 0 && int64_t{tenant.live} + 1 > kShareOfFreeQueue * (capacity_ - live_)) {
    status = ResourceExhausted("the queue is nearly full: ", tenant.info.name, " has ", tenant.live, " of ", live_,
                               " live requests, and what is left of ", capacity_, " is for others");
  } else {
    status = CheckTokens(tenant, now_nanos);
  }
  if (!status.ok()) CountRefused(owner);
  return status;
}

absl::Status TenantTable::CheckTokens(Tenant& tenant, int64_t now_nanos) const {
  const auto& tokens = tenant.info.limits.tokens_per_minute;
  if (!tokens) return absl::OkStatus();
  const double per_second = *tokens / 60.;
  if (now_nanos > tenant.filled_nanos) {
    const double filled = tenant.level + SecondsBetween(tenant.filled_nanos, now_nanos) * per_second;
    tenant.level = std::min<double>(*tokens, filled);
    tenant.filled_nanos = now_nanos;
  }
  if (tenant.level > 0) return absl::OkStatus();
  return RetryAfter(TenantLimitReached(tenant.info.name, " has had its ", *tokens, " tokens a minute (tokens-per-minute)"),
                    (1 - tenant.level) / per_second);
}

void TenantTable::Spend(Tenant& tenant, int tokens) const {
  if (tenant.info.limits.tokens_per_minute) tenant.level -= tokens;
}

void TenantTable::Admit(size_t owner, int prompt_tokens) {
  Tenant& tenant = tenants_[owner];
  ++tenant.live;
  ++live_;
  Spend(tenant, prompt_tokens);
}

void TenantTable::Release(size_t owner, int prompt_tokens, bool started) {
  Tenant& tenant = tenants_[owner];
  --tenant.live;
  --live_;
  if (started) {
    tenant.info.prompt_tokens += static_cast<uint64_t>(prompt_tokens);
  } else {
    Spend(tenant, -prompt_tokens);
  }
}

void TenantTable::CountGenerated(size_t owner, int tokens) {
  Tenant& tenant = tenants_[owner];
  tenant.info.generated_tokens += static_cast<uint64_t>(tokens);
  Spend(tenant, tokens);
}

void TenantTable::SetRunning(std::span<const int> by_owner) {
  running_ = 0;
  for (size_t owner = 0; owner < tenants_.size(); ++owner) {
    tenants_[owner].info.running = owner < by_owner.size() ? by_owner[owner] : 0;
    running_ += tenants_[owner].info.running;
  }
}

int TenantTable::Room(size_t owner) const {
  const TenantInfo& info = tenants_[owner].info;
  const int free = max_running_ - running_;
  return std::max(0, info.limits.max_running ? std::min(free, *info.limits.max_running - info.running) : free);
}

// While it waits for its own requests, each other tenant gets as many more turns as its weight says.
int TenantTable::Position(size_t owner) const {
  const Tenant& asking = tenants_[owner];
  const int own = Waiting(asking);
  int64_t position = own;
  for (size_t other = 0; other < tenants_.size(); ++other) {
    if (other == owner) continue;
    const int64_t weight = asking.info.limits.weight;
    const int64_t turns = (int64_t{own} * tenants_[other].info.limits.weight + weight - 1) / weight;
    position += std::min<int64_t>(Waiting(tenants_[other]), turns);
  }
  return static_cast<int>(position);
}

std::vector<TenantInfo> TenantTable::List() const {
  std::vector<TenantInfo> list;
  for (const Tenant& tenant : tenants_) {
    if (tenant.info.name.empty()) continue;
    list.push_back(tenant.info);
    list.back().waiting = Waiting(tenant);
  }
  std::sort(list.begin(), list.end(), [](const TenantInfo& a, const TenantInfo& b) { return a.name < b.name; });
  return list;
}

}  // namespace moed
