// What a plan of the memory budget is made for: the options of the daemon, a store and its model, and a preset.
#pragma once

#include <cstdint>
#include <optional>

#include "core/expert/memory_plan.h"
#include "core/expert/presets/preset.h"
#include "core/model/kv_pool.h"
#include "core/model/spec.h"
#include "core/store/description.h"

namespace moed {

inline constexpr int kMaxThreads = 256;  // of the kernels

// Where an embedding is that is not the head as well: in memory, or in the store, from where a token's row is read.
enum class EmbeddingPlace : uint8_t {
  kAuto,    // in memory where all experts that are of use have room beside it, or where it must be
  kMemory,  // like the rest of the trunk
  kStore,
};

// What the daemon may be told of how it serves. The defaults are the daemon's, but for the threads.
struct ServingOptions {
  std::optional<uint64_t> kv_budget;
  std::optional<int> max_context;
  KvFormat kv_format = KvFormat::kF16;
  EmbeddingPlace embedding = EmbeddingPlace::kAuto;
  std::optional<uint64_t> kv_spill_budget;  // of disk; absent: keys and values of idle sessions are not written there
  int threads = 1;
  int max_running = 8;
  std::optional<int> queue_capacity;       // absent: as the budget allows
  std::optional<int> prefill_chunk;        // absent: up to 4096 where steps wait for experts, fewer in a small budget
  std::optional<int> max_kept_sessions;    // absent: as the budget allows
  std::optional<int> max_new_tokens;       // that a request may ask for; absent: any number
  std::optional<int> max_request_seconds;  // StepEngineOptions
  uint64_t max_text_bytes = 1 << 20;       // of a text that is tokenised
  bool prefix_cache = true;                // StepEngineOptions
  bool prompt_lookup = true;               // StepEngineOptions
  bool fast_matmul = false;                // ModelOptions
};
// The daemon's defaults: as many threads as this machine's processor has.
ServingOptions ServingOptionsOfThisMachine();

// What the parts of the preset hold: `fixed_bytes`, `sequence_bytes` for every conversation, and so many tables of
// TokenTableBytes, which have no use for more than `most_table_bytes`; and what cache they need.
struct PresetNeeds {
  uint64_t fixed_bytes = 0;
  uint64_t sequence_bytes = 0;
  int token_tables = 0;
  uint64_t most_table_bytes = 0;
  CacheBounds cache;
};
PresetNeeds NeedsOfPreset(const PresetSetup& preset, const StoreDescription& store, const ModelSpec& spec);
// ExpertModelShape::table_bytes in a budget: little in a small one.
uint64_t TokenTableBytes(uint64_t budget, const PresetNeeds& preset);

struct ServingInputs {
  uint64_t budget = 0;
  const ServingOptions& options;
  const StoreDescription& store;
  const ModelSpec& spec;
  uint64_t tokenizer_bytes = 0;      // Tokenizer::memory_bytes
  uint64_t chat_template_bytes = 0;  // of its text; 0: the store has none
  PresetNeeds preset;
  bool trace = false;  // events are kept for a Chrome trace
  // Of a device with memory of its own, which has trunk, keys and values and activations. Absent: they are the host's.
  std::optional<uint64_t> device_budget = std::nullopt;
  bool records_routing = false;  // of sequences that run
};

}  // namespace moed
