#include "tools/plan/swapmoe_genetic.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/base/check.h"

namespace moed {
namespace {

struct Individual {
  double cost = 0;
  SlotCounts slots;
  friend auto operator<=>(const Individual&, const Individual&) = default;
};

SlotCounts Cross(const SlotCounts& a, const SlotCounts& b, SwapMoeRandom& random) {
  SlotCounts child = a;
  if (random.Below(2) == 0) {
    for (auto layer = static_cast<size_t>(random.Below(static_cast<int>(a.size()))); layer < a.size(); ++layer)
      child[layer] = b[layer];
  } else {
    for (size_t layer = 0; layer < a.size(); ++layer) child[layer] = (a[layer] + b[layer]) / 2;
  }
  return child;
}

}  // namespace

SlotCounts RandomSlots(const SlotsQuestion& question, int total, double evenness, SwapMoeRandom& random) {
  MOED_CHECK(total >= question.layers && total <= question.layers * question.experts);
  std::vector<double> shares(static_cast<size_t>(question.layers));
  for (double& share : shares) share = evenness - (1 - evenness) * std::log(1 - random.Uniform());
  const double sum = std::max(std::accumulate(shares.begin(), shares.end(), 0.0), 1e-300);
  SlotCounts slots(shares.size());
  int left = total;
  for (size_t layer = 0; layer < slots.size(); ++layer) {
    const double more = shares[layer] / sum * (total - question.layers);
    slots[layer] = std::min(question.experts, 1 + static_cast<int>(more));
    left -= slots[layer];
  }
  while (left > 0) {
    int& here = slots[static_cast<size_t>(random.Below(question.layers))];
    if (here == question.experts) continue;
    ++here;
    --left;
  }
  return slots;
}

SlotCounts SearchSlots(const SlotsQuestion& question, const GeneticOptions& options,
                       absl::FunctionRef<double(const SlotCounts&)> cost) {
  MOED_CHECK(question.layers > 0 && question.budget >= question.layers && options.population > 0);
  SwapMoeRandom random(options.seed);
  const int most = std::min(question.budget, question.layers * question.experts);
  std::vector<Individual> population;
  const auto add = [&](SlotCounts slots) {
    if (std::accumulate(slots.begin(), slots.end(), 0) > most) return;
    const double of_slots = cost(slots);
    population.push_back({of_slots, std::move(slots)});
  };
  const auto select = [&] {
    std::ranges::sort(population);
    population.erase(std::unique(population.begin(), population.end()), population.end());
    if (population.size() > static_cast<size_t>(options.population)) population.resize(static_cast<size_t>(options.population));
  };
  for (int i = 0; i < options.population; ++i)
    add(RandomSlots(question, most, static_cast<double>(i) / options.population, random));
  select();
  for (int generation = 0; generation < options.generations; ++generation) {
    const size_t parents = population.size();
    for (size_t i = 0; i < parents; ++i) {
      if (random.Uniform() < options.mutation) {
        SlotCounts mutant = population[i].slots;
        mutant[static_cast<size_t>(random.Below(question.layers))] = 1 + random.Below(question.experts);
        add(std::move(mutant));
      }
      if (random.Uniform() < options.crossover) {
        const auto other = static_cast<size_t>(random.Below(static_cast<int>(parents)));
        add(Cross(population[i].slots, population[other].slots, random));
      }
    }
    select();
  }
  return population.front().slots;
}

}  // namespace moed
