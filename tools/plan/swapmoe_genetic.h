// SwapMoE, 3.5.2: slots for every layer by genetic search under a memory limit. Pure; what slots cost is asked of a function.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "tools/plan/swapmoe_accuracy.h"
#include "tools/plan/swapmoe_random.h"

namespace moed {

struct SlotsQuestion {
  int layers = 0;
  int experts = 0;  // of a layer: most slots; the least is 1
  int budget = 0;   // slots of all layers, at least one each
};

// The paper's constants (section 4).
struct GeneticOptions {
  int population = 50;
  double mutation = 0.5;    // chance of each to have a mutant, one layer of which is changed
  double crossover = 0.01;  // chance of each to have a child with another one: layers exchanged behind a cut, or the mean of both
  int generations = 5000;
  uint64_t seed = 1;
};

// Every layer one, the rest at random; sums to `total`, between layers and layers * experts. `evenness`: 0 any way of dividing it
// is as likely, towards 1 the layers' parts are more and more alike.
SlotCounts RandomSlots(const SlotsQuestion& question, int total, double evenness, SwapMoeRandom& random);

// The slots of least cost that were met. Those beyond the budget are dropped, then the costliest, so that the population stays as
// large as it was; equal ones are kept once (ours). Of equal costs the first in lexicographic order is better.
SlotCounts SearchSlots(const SlotsQuestion& question, const GeneticOptions& options,
                       absl::FunctionRef<double(const SlotCounts&)> cost);

}  // namespace moed
