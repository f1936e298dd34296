// What is lowered or skipped at a miss, over a view of what is resident. What a token may lose is held by bound.h, whatever a
// rule proposes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/ids.h"
#include "core/expert/residency_view.h"
#include "core/expert/routing.h"

namespace moed {

// One distinct expert wanted by a layer of a step.
struct WantedExpert {
  int32_t expert = 0;
  float share = 0;        // of its token's gate mass: its probability by the sum over the choices; highest among its tokens
  float mass_before = 0;  // smallest sum of the shares ranked before it, over those tokens (HOBBIT's score s)
  int tokens = 0;         // that chose it
  Fidelity fidelity;      // the strictest among them
};

// What waiting costs here and now, measured while serving. 0: not known yet.
struct Prices {
  std::span<const double> read_seconds;  // [precision]: the disk's time for one record
  double layer_seconds = 0;              // a layer's computation, waits left out
  double experts_seconds = 0;            // its part that runs while the layer's own reads do
  double reuse = 0;                      // share of the records used once that are used again before they leave
};

// One layer of one step. Valid during the call it is passed to.
struct LayerDemand {
  const LayerRouting& routing;
  std::span<const WantedExpert> wanted;
  std::span<const int32_t> positions;  // expert -> index into wanted; -1: nobody wants it
  Phase phase = Phase::kDecode;        // decode when any token is
  const ResidencyView& residents;
  const Prices& prices;

  bool Resident(const WantedExpert& expert, Precision precision = kReferencePrecision) const {
    return residents.Resident({routing.layer, expert.expert, precision});
  }
  // Neither resident nor on its way at the reference precision.
  bool Missing(const WantedExpert& expert) const {
    return !Resident(expert) && !residents.Loading({routing.layer, expert.expert, kReferencePrecision});
  }
};

enum class ActionKind : uint8_t { kUse, kSkip };  // kUse: at `precision`, waiting for the load if it is not resident
struct Action {
  ActionKind kind = ActionKind::kUse;
  Precision precision = kReferencePrecision;
  friend bool operator==(const Action&, const Action&) = default;
};
inline constexpr Action kExactly{};

// What to do with each wanted expert, after top-k. Engine thread only, under the cache's lock.
class FidelityRule {
 public:
  virtual ~FidelityRule() = default;
  // `actions` are as many as demand.wanted, all kExactly. Not asked in a step whose tokens are all exact.
  virtual void Resolve(const LayerDemand& demand, std::span<Action> actions) = 0;
  // At which precision a guess of a sequence that may lose something is read ahead.
  virtual Precision PrefetchPrecision(const ExpertKey&, Precision guessed) const { return guessed; }
  virtual size_t memory_bytes() const { return 0; }  // tables: no more than its row says
};

}  // namespace moed
