// What the memory budget of the daemon is spent on, decided before anything is allocated: a pure function of plain data. Its
// terms come from everywhere: the model's scratch, the engine's queues, the expert cache's tables, the server's own streams.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/kv_spill.h"
#include "core/engine/step_engine.h"
#include "core/expert/memory_plan.h"
#include "core/expert/presets/preset.h"
#include "core/kernels/backend.h"
#include "core/model/kv_pool.h"
#include "core/model/model.h"
#include "core/store/description.h"

namespace moed {

// Of answers that their clients have not taken, at most.
struct AnswerBytes {
  size_t stream = 0;  // of one that is streamed, what is not sent
  size_t whole = 0;   // of one in one message; >= stream
  size_t ended = 0;   // of all that have ended, together
};

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
  std::optional<int> prefill_chunk;        // absent: 512, fewer in a small budget
  std::optional<int> max_kept_sessions;    // absent: as the budget allows
  std::optional<int> max_new_tokens;       // absent: what the context leaves
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

// Of texts that are scored with alternatives: at most what running requests hold of them and what their ends are told with, each
// a vector of pairs for a token.
uint64_t ScoredAlternativesBytes(const StepEngineOptions& engine);

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
};

// One of several things that a part of the memory plan is made of.
struct MemoryTerm {
  std::string_view part;  // "tables", "queues"
  std::string_view name;
  uint64_t bytes = 0;
};

struct ServingPlan {
  MemoryPlan memory;
  std::vector<MemoryTerm> terms;  // of a part at most its bytes
  KvPoolSizes kv;
  KvSpillSizes kv_spill;  // with kv_spill_budget
  int running = 0;        // requests at once: max_running, or as many as there are slots for
  ModelOptions model;
  StepEngineOptions engine;
  size_t prompt_queue_bytes = 0;  // prompts that wait, and again as much of texts for Tokenize
  AnswerBytes answers;
  uint64_t format_bytes = 0;       // what answers must be, and the vocabulary for it
  uint64_t tool_schema_bytes = 0;  // names in tools, of all requests
  size_t trace_events = 0;         // 0 without --trace
};

// Nothing that is planned for holds more than it is given (serving_plan_test.cc). RESOURCE_EXHAUSTED with the table of the
// smallest budget that works; INVALID_ARGUMENT for contradictions (PlanMemory, EmbeddingPlace::kStore where it cannot be).
absl::StatusOr<ServingPlan> PlanServing(const ServingInputs& in);

// Budgets to choose from.
struct ServingBudgets {
  MemoryPlan smallest;     // one byte less is refused
  MemoryPlan comfortable;  // every expert that the preset can use stays in memory; with one byte less some are read again
};
// `in` says everything but the budget. INVALID_ARGUMENT as PlanServing.
absl::StatusOr<ServingBudgets> FindServingBudgets(const ServingInputs& in);

}  // namespace moed
