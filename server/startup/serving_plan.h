// From store, model and settings to the plan of the memory budget.
#pragma once

#include "absl/status/statusor.h"
#include "core/engine/step_engine.h"
#include "core/expert/memory_plan.h"
#include "core/expert/presets/preset.h"
#include "core/model/model.h"
#include "core/store/store.h"
#include "server/startup/config.h"

namespace moed {

inline constexpr int kMaxUnsentTokens = 128;  // of one stream

struct ServingPlan {
  MemoryPlan memory;
  ModelOptions model;
  StepEngineOptions engine;
  size_t prompt_queue_bytes = 0;
  size_t trace_events = 0;  // 0 without --trace
};

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

absl::StatusOr<ServingPlan> PlanServing(const Config& config, uint64_t budget, const StoreReader& store, const ModelSpec& spec,
                                        uint64_t tokenizer_bytes, const PresetNeeds& preset);

}  // namespace moed
