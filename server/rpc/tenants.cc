#include "server/rpc/tenants.h"

#include "core/base/retry_after.h"
#include "core/base/status.h"
#include "core/base/tenant_limits.h"

namespace moed {

std::string SessionOf(const std::string& tenant, const std::string& id) {
  return tenant.empty() || id.empty() ? id : StrCat(tenant, "/", id);
}

absl::StatusOr<Tenants::Place> Tenants::Enter(const std::string& tenant) {
  if (tenant.empty() || !most_calls_) return Place(*this, "");
  absl::MutexLock lock(&mutex_);
  int& calls = calls_[tenant];
  if (calls >= *most_calls_) {
    return RetryAfter(
        TenantLimitReached(tenant, " has ", calls, " calls running or waiting, and no more are taken (--max-calls-per-token)"),
        kRetrySeconds);
  }
  ++calls;
  return Place(*this, tenant);
}

void Tenants::Leave(const std::string& tenant) {
  if (tenant.empty()) return;
  absl::MutexLock lock(&mutex_);
  const auto found = calls_.find(tenant);
  if (--found->second == 0) calls_.erase(found);
}

}  // namespace moed
