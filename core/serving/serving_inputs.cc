#include "core/serving/serving_inputs.h"

#include <algorithm>
#include <thread>

#include "core/expert/builder/build_provider.h"

namespace moed {

ServingOptions ServingOptionsOfThisMachine() {
  ServingOptions options;
  options.threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
  return options;
}

PresetNeeds NeedsOfPreset(const PresetSetup& preset, const StoreDescription& store, const ModelSpec& spec) {
  const PartMemory parts = MemoryOfParts(preset, store, {spec.top_k, spec.hidden});
  return {.fixed_bytes = parts.fixed_bytes,
          .sequence_bytes = parts.sequence_bytes,
          .token_tables = parts.tables,
          .most_table_bytes = parts.most_table_bytes,
          .cache = BoundsOfCache(preset, store, spec.top_k)};
}

uint64_t TokenTableBytes(uint64_t budget, const PresetNeeds& preset) {
  return std::min<uint64_t>({budget / 128, 64 << 20, preset.most_table_bytes});
}

}  // namespace moed
