// EdgeMoE, section III-B: expert-wise bit widths under a tolerable loss. Pure search; what a model loses is asked of a function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"

namespace moed {

struct Width {
  Precision precision = kReferencePrecision;
  std::string name;    // "q4"
  uint64_t bytes = 0;  // of all experts
};

struct WidthsQuestion {
  std::vector<Width> widths;  // that experts may have, most bytes first; at least two
  int experts = 0;            // of all layers
  double tolerable_loss = 0;  // growth of the perplexity over that of the reference precision: 0.02 for 2 %
};

struct WidthsPlan {
  std::vector<Precision> precisions;   // by expert
  std::vector<double> uniform_losses;  // by width: all experts at it
  std::vector<double> importance;      // by expert: nats a token more when it alone is lowered; empty where none had to be ranked
  size_t upper = 0, lower = 0;         // widths used
  int lowered = 0;                     // K: experts at the lower width
  double reference_nats = 0;           // a token, all experts at the reference precision
  double nats = 0;                     // a token, of the plan
  double loss = 0;                     // of the plan; <= the tolerable one
};

// Mean nats a token with these precisions (by expert).
using NatsOf = absl::FunctionRef<absl::StatusOr<double>(const std::vector<Precision>& precisions)>;

// 1 Measures every width alone. The upper one is the narrowest for which it and all wider ones stay within the tolerable loss,
// the
//   lower one its neighbour. 2 Ranks the experts by the loss of each at the narrowest width, all others at the next wider one.
// 3 Looks for the largest K for which the K least important at the lower width and the rest at the upper one stay within it, by
//   halving (ours; the paper says gradually), as if the loss grew with K: what is returned was measured, a larger K might do too.
// (The paper ranks first; this order finds out sooner that nothing can be done.)
// OUT_OF_RANGE when even the widest loses more, with what each loses. Errors of `nats_of` as they are.
absl::StatusOr<WidthsPlan> SearchWidths(const WidthsQuestion& question, NatsOf nats_of);
// Most calls of `nats_of`.
int MostMeasurements(const WidthsQuestion& question);

}  // namespace moed
