#include "core/engine/batch_plan.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace moed {
namespace {

int Growth(const PlanSequence& sequence) { return std::max(0, sequence.required_pages - sequence.held_pages); }

// All that it needs of what those that run do not hold. Its own are counted: it may have lost them by the time it is admitted. It
// never gives back surplus ones.
int PagesOf(const PlanSequence& sequence) {
  return std::max(sequence.required_pages, sequence.held_pages) - sequence.shared_pages;
}

// How many keep running; takes what they grow by from `available`.
int KeepRunning(std::span<const PlanSequence> sequences, int running, int& available) {
  for (int i = 0; i < running; ++i) {
    while (Growth(sequences[i]) > available && running > std::max(i, 1)) {
      const PlanSequence& gone = sequences[--running];
      available += gone.held_pages - gone.shared_pages;
    }
    if (i < running) available -= Growth(sequences[i]);
  }
  return running;
}

// How many run then; takes their pages from `available`.
int Admit(std::span<const PlanSequence> sequences, int running, int max_running, int& available) {
  const int limit = std::min(max_running, static_cast<int>(sequences.size()));
  while (running < limit) {
    const int pages = PagesOf(sequences[running]);
    if (running > 0 && pages + running > available) break;
    available -= pages;
    ++running;
  }
  return running;
}

// Those behind sequences[running], which lacks pages, that run before it.
std::vector<int> Overtake(std::span<const PlanSequence> sequences, int running, int max_running, int available) {
  const int limit = std::min(max_running, static_cast<int>(sequences.size()));
  std::vector<int> overtaking;
  if (running + 1 >= limit) return overtaking;
  int free = available;
  for (const PlanSequence& waits : sequences.subspan(running)) free -= waits.held_pages - waits.shared_pages;
  // Beside the first, once those that have not overtaken have ended, and the others have grown.
  int left = available - PagesOf(sequences[running]);
  for (const PlanSequence& runs : sequences.first(running)) left += runs.overtook ? -1 : PagesOf(runs);
  for (int i = running + 1; i < limit; ++i) {
    const PlanSequence& next = sequences[i];
    const int run = running + static_cast<int>(overtaking.size());
    if (next.gave_way || Growth(next) + run > free || PagesOf(next) + 1 > left) continue;
    free -= Growth(next);
    left -= PagesOf(next) + 1;
    overtaking.push_back(i);
  }
  return overtaking;
}

// A tenant's prompts, as indices of `runs`, and what of a step they get.
struct TenantPrompts {
  int weight = 1;
  int wanted = 0;
  int given = 0;
  std::vector<size_t> prompts;
};

// In order of tenants.
std::vector<TenantPrompts> PromptsOfTenants(std::span<const PlanSequence> runs) {
  std::map<int, TenantPrompts> tenants;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].decoding || runs[i].whole || runs[i].pending_tokens <= 0) continue;
    TenantPrompts& tenant = tenants[runs[i].tenant];
    tenant.weight = runs[i].weight;
    tenant.wanted += runs[i].pending_tokens;
    tenant.prompts.push_back(i);
  }
  std::vector<TenantPrompts> out;
  for (auto& [number, tenant] : tenants) out.push_back(std::move(tenant));
  return out;
}

// `left` tokens, by weight, nobody more than is wanted. What does not divide goes to the first ones.
void ShareByWeight(std::vector<TenantPrompts>& tenants, int left) {
  while (left > 0) {
    int64_t weights = 0;
    for (const TenantPrompts& tenant : tenants) weights += tenant.given < tenant.wanted ? tenant.weight : 0;
    if (weights == 0) return;
    const int round = left;
    for (TenantPrompts& tenant : tenants) {
      const auto part = static_cast<int>(std::max<int64_t>(1, int64_t{round} * tenant.weight / weights));
      const int given = std::min({tenant.wanted - tenant.given, part, left});
      tenant.given += given;
      left -= given;
    }
  }
}

// Of one tenant's prompts, which get `left` tokens.
void SharePrompts(std::span<const PlanSequence> runs, const std::vector<size_t>& prompts, int left, std::vector<int>& tokens) {
  const auto give = [&](size_t i, int most) {
    const int given = std::min({runs[i].pending_tokens - tokens[i], most, left});
    tokens[i] += given;
    left -= given;
    return given;
  };
  const int oldest = runs[prompts.front()].pending_tokens;
  std::vector<size_t> shorter;
  std::copy_if(prompts.begin(), prompts.end(), std::back_inserter(shorter),
               [&](size_t i) { return runs[i].pending_tokens < oldest; });
  std::stable_sort(shorter.begin(), shorter.end(),
                   [&](size_t a, size_t b) { return runs[a].pending_tokens < runs[b].pending_tokens; });
  int half = left / 2;
  for (const size_t i : shorter) half -= give(i, half);
  for (const size_t i : prompts) give(i, left);
}

// Tokens of each that prefills in pieces, `left` in all.
void SharePrefill(std::span<const PlanSequence> runs, int left, std::vector<int>& tokens) {
  std::vector<TenantPrompts> tenants = PromptsOfTenants(runs);
  ShareByWeight(tenants, left);
  for (const TenantPrompts& tenant : tenants) SharePrompts(runs, tenant.prompts, tenant.given, tokens);
}

// Those of each that is computed whole, `left` in all; a younger one does not overtake. What is left then.
int AddWhole(std::span<const PlanSequence> runs, int left, std::vector<int>& tokens) {
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].whole) continue;
    if (runs[i].pending_tokens > left) break;
    tokens[i] = runs[i].pending_tokens;
    left -= tokens[i];
  }
  return left;
}

}  // namespace

BatchPlan PlanStep(std::span<const PlanSequence> sequences, const PlanBudget& budget) {
  const int before = static_cast<int>(
      std::count_if(sequences.begin(), sequences.end(), [](const PlanSequence& sequence) { return sequence.running; }));
  int available = budget.available_pages;
  BatchPlan plan;
  plan.running = KeepRunning(sequences, before, available);
  if (plan.running == before) {
    plan.running = Admit(sequences, before, budget.max_running, available);
    plan.overtaking = Overtake(sequences, plan.running, budget.max_running, available);
  }
  std::vector<PlanSequence> runs(sequences.begin(), sequences.begin() + plan.running);
  for (const int overtakes : plan.overtaking) runs.push_back(sequences[overtakes]);
  plan.running = static_cast<int>(runs.size());

  const auto decoding = [](const PlanSequence& sequence) { return sequence.decoding; };
  const int decoders = static_cast<int>(std::count_if(runs.begin(), runs.end(), decoding));
  const int most = std::min(budget.max_step_tokens, decoders == 0 ? budget.max_prompt_tokens : budget.max_shared_tokens);
  std::vector<int> prefill(runs.size(), 0);
  const int room = budget.max_step_tokens - (budget.whole_apart ? 0 : decoders);
  const int left = AddWhole(runs, room, prefill);
  SharePrefill(runs, budget.whole_apart ? most - decoders : std::min(most - decoders, left), prefill);
  for (int i = 0; i < plan.running; ++i) {
    const int tokens = runs[i].decoding ? 1 : prefill[i];
    if (tokens > 0) plan.chunks.push_back({i, tokens});
  }
  return plan;
}

}  // namespace moed
