// The texts that planners make offline for a store, each handed to every reader: widths, slots, Fate's and HOBBIT's numbers.
#include "core/expert/fidelity/fate_plan.h"
#include "core/expert/fidelity/hobbit_plan.h"
#include "core/expert/fidelity/widths.h"
#include "core/expert/swapmoe/slots.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

namespace {

constexpr uint64_t kModelHash = 0xab;
constexpr int kLayers = 2, kExperts = 3, kPrecisions = 2;

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  const std::string path = folder.Write("plan", fuzz::Text(data, size));
  if (const auto widths = ReadWidths(path, kModelHash, kLayers, kExperts, kPrecisions); widths.ok()) {
    for (const std::vector<int>& layer : *widths) {
      for (const int precision : layer) MOED_CHECK(precision >= 0 && precision < kPrecisions);
    }
  }
  if (const auto plan = ReadSlotsPlan(path, kModelHash, kLayers, kExperts); plan.ok()) {
    for (const int slots : plan->slots) MOED_CHECK(slots >= 1 && slots <= kExperts);
    for (const float norm : plan->norms) MOED_CHECK(norm >= 0);
  }
  if (const auto plan = ReadFatePlan(path, kModelHash, kLayers); plan.ok()) {
    MOED_CHECK(plan->prefill_low >= 0 && plan->prefill_low <= 1);
    MOED_CHECK(plan->shallow_layers >= 0 && plan->shallow_layers <= kLayers);
  }
  if (const auto plan = ReadHobbitPlan(path, kModelHash); plan.ok()) {
    MOED_CHECK(plan->thresholds.high >= 0 && plan->thresholds.high <= plan->thresholds.low && plan->thresholds.low <= 1);
    MOED_CHECK(plan->tuning.high_cache >= 0 && plan->tuning.high_cache <= 1);
  }
  return 0;
}
