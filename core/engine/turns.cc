#include "core/engine/turns.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace moed {
namespace {

size_t IndexOf(Priority priority) { return static_cast<size_t>(priority); }

}  // namespace

// A tenant's requests, and how its times would be if those that were chosen had run.
struct Turns::Queue {
  size_t owner = 0;
  int running = 0;
  double time = 0;
  std::array<double, kPriorities> times{};
  std::array<std::vector<size_t>, kPriorities> waiting;  // indices, in order of arrival
  std::array<size_t, kPriorities> chosen{};              // of those, the first so many
  int places_left = 0;                                   // that its limit leaves

  bool Waits(size_t priority) const { return chosen[priority] < waiting[priority].size(); }
  // The priority whose turn it is; kPriorities: nobody waits.
  size_t Turn() const {
    size_t best = kPriorities;
    for (size_t priority = 0; priority < kPriorities; ++priority) {
      if (Waits(priority) && (best == kPriorities || times[priority] < times[best])) best = priority;
    }
    return best;
  }
  size_t First() const {
    const size_t turn = Turn();
    return waiting[turn][chosen[turn]];
  }
};

void Turns::Enter(size_t owner, Priority priority, const TenantLimits& limits) {
  if (owner >= tenants_.size()) tenants_.resize(owner + 1);
  Tenant& tenant = tenants_[owner];
  tenant.limits = limits;
  limits_kv_ = std::any_of(tenants_.begin(), tenants_.end(), [](const Tenant& each) { return each.limits.kv_percent; });
  for (size_t i = 0; i < kPriorities; ++i) tenant.priorities.SetWeight(i, kPriorityWeights[i]);
  tenant.priorities.Enter(IndexOf(priority));
  shares_.SetWeight(owner, limits.weight);
  shares_.Enter(owner);
}

void Turns::Leave(size_t owner, Priority priority) {
  shares_.Leave(owner);
  tenants_[owner].priorities.Leave(IndexOf(priority));
}

void Turns::Charge(size_t owner, Priority priority, int tokens) {
  shares_.Charge(owner, tokens);
  tenants_[owner].priorities.Charge(IndexOf(priority), tokens);
}

std::vector<Turns::Queue> Turns::Queues(std::span<const TurnEntry> entries) const {
  std::vector<Queue> queues;
  std::vector<size_t> place(tenants_.size(), tenants_.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const TurnEntry& entry = entries[i];
    if (place[entry.owner] == tenants_.size()) {
      place[entry.owner] = queues.size();
      Queue queue{.owner = entry.owner, .time = shares_.time(entry.owner)};
      for (size_t priority = 0; priority < kPriorities; ++priority) {
        queue.times[priority] = tenants_[entry.owner].priorities.time(priority);
      }
      queues.push_back(std::move(queue));
    }
    Queue& queue = queues[place[entry.owner]];
    if (entry.running) {
      ++queue.running;
    } else if (!entry.gave_way) {
      queue.waiting[IndexOf(entry.priority)].push_back(i);
    }
  }
  for (Queue& queue : queues) {
    queue.places_left = limits(queue.owner).max_running.value_or(std::numeric_limits<int>::max()) - queue.running;
  }
  return queues;
}

// The queue whose turn it is. Of two that had as much, the one with fewer places, then the one that waits longer.
std::optional<size_t> Turns::Best(const std::vector<Queue>& queues) const {
  std::optional<size_t> best;
  const auto key = [&](const Queue& queue) {
    const int places = queue.running + static_cast<int>(queue.chosen[0] + queue.chosen[1] + queue.chosen[2]);
    return std::tuple(Heavy(queue.owner), queue.time, places, queue.First());
  };
  for (size_t i = 0; i < queues.size(); ++i) {
    if (queues[i].places_left <= 0 || queues[i].Turn() == kPriorities) continue;
    if (!best || key(queues[i]) < key(queues[*best])) best = i;
  }
  return best;
}

std::vector<size_t> Turns::Next(std::span<const TurnEntry> entries, int places) const {
  std::vector<size_t> next;
  std::vector<Queue> queues = Queues(entries);
  while (static_cast<int>(next.size()) < places) {
    const std::optional<size_t> best = Best(queues);
    if (!best) break;
    Queue& queue = queues[*best];
    const size_t turn = queue.Turn(), index = queue.First();
    next.push_back(index);
    ++queue.chosen[turn];
    --queue.places_left;
    queue.time += entries[index].tokens / shares_.weight(queue.owner);
    queue.times[turn] += entries[index].tokens / kPriorityWeights[turn];
  }
  return next;
}

std::optional<size_t> Turns::GivesWay(std::span<const TurnEntry> entries, int places) const {
  const std::vector<Queue> queues = Queues(entries);
  const std::optional<size_t> next = Best(queues);
  if (!next || queues[*next].running > 0) return std::nullopt;
  const Queue* most = nullptr;
  for (const Queue& queue : queues) {
    const double share = shares_.weight(queue.owner) / shares_.present_weight() * places;
    if (queue.running < 2 || queue.running <= share) continue;
    const auto each = [&](const Queue& other) { return other.running / shares_.weight(other.owner); };
    if (most == nullptr || each(queue) > each(*most)) most = &queue;
  }
  if (most == nullptr) return std::nullopt;
  std::optional<size_t> youngest;
  for (size_t i = entries.size(); i-- > 0;) {
    if (entries[i].owner != most->owner || !entries[i].running) continue;
    if (entries[i].gives_way) return i;
    if (!youngest) youngest = i;
  }
  return youngest;
}

std::vector<int> Turns::RankOwners(std::span<const TurnEntry> running) const {
  std::vector<size_t> owners;
  for (const TurnEntry& entry : running) {
    if (std::find(owners.begin(), owners.end(), entry.owner) == owners.end()) owners.push_back(entry.owner);
  }
  std::stable_sort(owners.begin(), owners.end(), [&](size_t a, size_t b) { return shares_.time(a) < shares_.time(b); });
  std::vector<int> ranks;
  for (const TurnEntry& entry : running) {
    ranks.push_back(static_cast<int>(std::find(owners.begin(), owners.end(), entry.owner) - owners.begin()));
  }
  return ranks;
}

}  // namespace moed
