// Who of those that wait runs next, and who gives way for whom.
//
// Tenants share what is computed by their weights. A tenant's requests share what it has by their priorities, so that none
// waits for ever; those of one priority run in order of arrival.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/tenant_limits.h"
#include "core/engine/engine.h"
#include "core/engine/fair_share.h"

namespace moed {

// Shares of high, normal and low priority, [Priority].
inline constexpr std::array<double, kPriorities> kPriorityWeights = {16, 4, 1};

// A live request as it is seen here.
struct TurnEntry {
  size_t owner = 0;  // its tenant's number
  Priority priority = Priority::kNormal;
  bool running = false;
  bool gives_way = false;  // a running one that goes on later without having lost much; another one is computed anew
  int tokens = 1;          // to be computed before its next one
  bool gave_way = false;   // in this turn: the place that it had is not its own again
};

// Engine thread only.
class Turns {
 public:
  // A request is there, or has ended. The tenant's limits are those that its last request came with.
  void Enter(size_t owner, Priority priority, const TenantLimits& limits);
  void Leave(size_t owner, Priority priority);
  // Tokens were computed for one.
  void Charge(size_t owner, Priority priority, int tokens);
  // Whether a tenant's keys and values are more than its share while others want room: it comes after the others.
  void SetHeavy(std::vector<bool> owners) { heavy_ = std::move(owners); }
  bool Heavy(size_t owner) const { return owner < heavy_.size() && heavy_[owner]; }
  const TenantLimits& limits(size_t owner) const { return tenants_[owner].limits; }
  size_t tenants() const { return tenants_.size(); }
  bool limits_kv() const { return limits_kv_; }  // some tenant has a share of keys and values

  // Indices of those of `entries`, in order of arrival, that run next if there are `places`, in order. Nobody gets more places
  // than its tenant may have, and who gave way gets none.
  std::vector<size_t> Next(std::span<const TurnEntry> entries, int places) const;
  // Where all of `places` are taken: who gives its own to the next tenant that has none. It is the youngest running request of
  // the tenant that is furthest above its share of places; of those that lose little by it, where it has such.
  std::optional<size_t> GivesWay(std::span<const TurnEntry> entries, int places) const;
  // By tenant: least served first, its place in this order.
  std::vector<int> RankOwners(std::span<const TurnEntry> running) const;

 private:
  struct Tenant {
    TenantLimits limits;
    FairShare priorities;
  };
  struct Queue;

  std::vector<Queue> Queues(std::span<const TurnEntry> entries) const;
  std::optional<size_t> Best(const std::vector<Queue>& queues) const;

  FairShare shares_;
  std::vector<Tenant> tenants_;  // [owner]
  std::vector<bool> heavy_;      // [owner]
  bool limits_kv_ = false;
};

}  // namespace moed
