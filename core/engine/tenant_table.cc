#include "core/engine/tenant_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/clock.h"
#include "core/base/retry_after.h"
#include "core/base/status.h"
#include "core/engine/turns.h"

namespace moed {
namespace {

constexpr int64_t kShareOfFreeQueue = 4;

// Of `waiting` others, those that have their turns while `own` of the asking side have theirs.
int RunBefore(int waiting, double weight, int own, double own_weight) {
  return static_cast<int>(std::min<double>(waiting, std::ceil(own * weight / own_weight)));
}

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

void TenantTable::Admit(size_t owner, Priority priority, int prompt_tokens) {
  Tenant& tenant = tenants_[owner];
  ++tenant.live;
  ++tenant.live_of[static_cast<size_t>(priority)];
  ++live_;
  Spend(tenant, prompt_tokens);
}

void TenantTable::Release(size_t owner, Priority priority, int prompt_tokens, bool started) {
  Tenant& tenant = tenants_[owner];
  --tenant.live;
  --tenant.live_of[static_cast<size_t>(priority)];
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

void TenantTable::SetRunning(std::span<const CountsByPriority> by_owner) {
  running_ = 0;
  for (size_t owner = 0; owner < tenants_.size(); ++owner) {
    Tenant& tenant = tenants_[owner];
    tenant.running_of = owner < by_owner.size() ? by_owner[owner] : CountsByPriority{};
    tenant.info.running = std::accumulate(tenant.running_of.begin(), tenant.running_of.end(), 0);
    running_ += tenant.info.running;
  }
}

int TenantTable::Room(size_t owner) const {
  const TenantInfo& info = tenants_[owner].info;
  const int free = max_running_ - running_;
  return std::max(0, info.limits.max_running ? std::min(free, *info.limits.max_running - info.running) : free);
}

// While it waits for those of its own priority, each other priority gets as many more turns as its weight says.
int TenantTable::OwnPosition(const Tenant& tenant, Priority priority) {
  const auto asked = static_cast<size_t>(priority);
  const auto waiting = [&](size_t of) { return std::max(0, tenant.live_of[of] - tenant.running_of[of]); };
  int position = waiting(asked);
  for (size_t other = 0; other < kPriorityWeights.size(); ++other) {
    if (other == asked) continue;
    position += RunBefore(waiting(other), kPriorityWeights[other], waiting(asked), kPriorityWeights[asked]);
  }
  return position;
}

// While it waits for its own requests, each other tenant gets as many more turns as its weight says.
int TenantTable::Position(size_t owner, Priority priority) const {
  const Tenant& asking = tenants_[owner];
  const int own = OwnPosition(asking, priority);
  int position = own;
  for (size_t other = 0; other < tenants_.size(); ++other) {
    if (other == owner) continue;
    const Tenant& tenant = tenants_[other];
    position += RunBefore(Waiting(tenant), tenant.info.limits.weight, own, asking.info.limits.weight);
  }
  return position;
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
