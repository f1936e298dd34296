// What the memory budget of the daemon is spent on, decided before anything is allocated: a pure function of plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/kv_spill.h"
#include "core/engine/step_engine.h"
#include "core/expert/memory_plan.h"
#include "core/model/kv_pool.h"
#include "core/model/model.h"
#include "core/serving/serving_inputs.h"
#include "core/serving/serving_needs.h"

namespace moed {

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
