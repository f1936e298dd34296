// What the memory budget is spent on, decided before anything is allocated: a pure function of plain data. It is the server's,
// since its terms come from everywhere (the model's scratch, the engine's queues, the expert cache's tables, the server's own
// streams), which no module below may include together.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/step_engine.h"
#include "core/expert/memory_plan.h"
#include "core/expert/presets/preset.h"
#include "core/model/kv_pool.h"
#include "core/model/model.h"
#include "core/store/description.h"
#include "server/startup/config.h"

namespace moed {

inline constexpr int kMaxUnsentTokens = 128;       // of one stream
inline constexpr uint64_t kUnsentTokenBytes = 64;  // id, text and framing of one token that waits to be sent

// What the parts of the preset hold: `fixed_bytes`, `sequence_bytes` for every conversation, and so many tables of
// TokenTableBytes; and what cache they need.
struct PresetNeeds {
  uint64_t fixed_bytes = 0;
  uint64_t sequence_bytes = 0;
  int token_tables = 0;
  CacheBounds cache;
};
// ExpertModelShape::table_bytes in a budget: little in a small one.
uint64_t TokenTableBytes(uint64_t budget);

// Of texts that are scored with alternatives: at most what running requests hold of them and what their ends are told with, each
// a vector of pairs for a token.
uint64_t ScoredAlternativesBytes(const StepEngineOptions& engine);

struct ServingInputs {
  uint64_t budget = 0;  // what --memory-budget says, or stands for where it is absent
  const Config& flags;
  const StoreDescription& store;
  const ModelSpec& spec;
  uint64_t tokenizer_bytes = 0;
  PresetNeeds preset;
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
  int running = 0;  // requests at once: max_running, or as many as there are slots for
  ModelOptions model;
  StepEngineOptions engine;
  size_t prompt_queue_bytes = 0;
  size_t trace_events = 0;  // 0 without --trace
};

// Nothing that is planned for holds more than it is given (serving_plan_test.cc). RESOURCE_EXHAUSTED with the table of the
// smallest budget that works; INVALID_ARGUMENT for contradictions (PlanMemory).
absl::StatusOr<ServingPlan> PlanServing(const ServingInputs& in);

}  // namespace moed
