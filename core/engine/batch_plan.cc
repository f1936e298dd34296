#include "core/engine/batch_plan.h"

#include <algorithm>

namespace moed {
namespace {

int Growth(const PlanSequence& sequence) { return std::max(0, sequence.required_pages - sequence.held_pages); }

// How many keep running; takes what they grow by from `available`.
int KeepRunning(std::span<const PlanSequence> sequences, int running, int& available) {
  for (int i = 0; i < running; ++i) {
    while (Growth(sequences[i]) > available && running > std::max(i, 1)) available += sequences[--running].held_pages;
    if (i < running) available -= Growth(sequences[i]);
  }
  return running;
}

int Admit(std::span<const PlanSequence> sequences, int running, int max_running, int available) {
  const int limit = std::min(max_running, static_cast<int>(sequences.size()));
  while (running < limit) {
    const PlanSequence& next = sequences[running];
    // Its own pages are counted as available: it may have lost them by the time it is admitted. It never gives back surplus ones.
    const int pages = std::max(next.required_pages, next.held_pages);
    if (running > 0 && pages + running > available) break;
    available -= pages;
    ++running;
  }
  return running;
}

}  // namespace

BatchPlan PlanStep(std::span<const PlanSequence> sequences, const PlanBudget& budget) {
  const int before = static_cast<int>(
      std::count_if(sequences.begin(), sequences.end(), [](const PlanSequence& sequence) { return sequence.running; }));
  int available = budget.available_pages;
  BatchPlan plan;
  plan.running = KeepRunning(sequences, before, available);
  if (plan.running == before) plan.running = Admit(sequences, before, budget.max_running, available);

  const auto runs = sequences.first(plan.running);
  const auto decoding = [](const PlanSequence& sequence) { return sequence.decoding; };
  const int decoders = static_cast<int>(std::count_if(runs.begin(), runs.end(), decoding));
  int left = (decoders == 0 ? budget.max_step_tokens : std::min(budget.max_step_tokens, budget.max_shared_tokens)) - decoders;
  for (int i = 0; i < plan.running; ++i) {
    const int tokens = runs[i].decoding ? 1 : std::min(runs[i].pending_tokens, left);
    if (!runs[i].decoding) left -= tokens;
    if (tokens > 0) plan.chunks.push_back({i, tokens});
  }
  return plan;
}

}  // namespace moed
