// EdgeMoE, section III-B: expert-wise bit widths under a tolerable loss. Pure search; what a model loses is asked of a function.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
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
  double confidence = 0;      // of ConfirmWidths: 0.95 for 95 %
};

// What a plan loses on text that it was not made on.
struct ConfirmedLoss {
  double loss = 0;
  double bound = 0;    // that the loss on such text is at most, as sure as the question asks for
  bool holds = false;  // the bound is within the tolerable loss
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
  std::optional<ConfirmedLoss> confirmed;  // ConfirmWidths
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

// What these precisions lose on other text, and the bound that this one look is so sure of.
using ConfirmedLossOf =
    absl::FunctionRef<absl::StatusOr<ConfirmedLoss>(const std::vector<Precision>& precisions, double confidence)>;
// The plan's bound on other text. Where it is beyond the tolerable loss fewer experts are lowered, found by halving, until it
// holds; where it does not hold with none, the plan is that one and says so. There are up to kConfirmLooks looks at the other
// text, which share the doubt that the question leaves (Bonferroni).
absl::Status ConfirmWidths(const WidthsQuestion& question, NatsOf nats_of, ConfirmedLossOf confirmed_of, WidthsPlan& plan);
inline constexpr int kConfirmLooks = 8;
// Of losses in nats by piece of text, over those of the reference, and the tokens of the pieces: all in all, and the one-sided
// bound by their spread (Student). At least two pieces.
ConfirmedLoss BoundLoss(std::span<const double> nats, std::span<const int> tokens, double confidence);

// Most calls of `nats_of`, both functions together.
int MostMeasurements(const WidthsQuestion& question);

}  // namespace moed
