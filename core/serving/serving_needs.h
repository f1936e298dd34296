// What everything that the daemon holds needs of a budget, and the options that say so: its terms come from everywhere, the
// model's scratch, the engine's queues, the expert cache's tables, the server's own streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/engine/kv_spill.h"
#include "core/engine/step_engine.h"
#include "core/expert/memory_plan.h"
#include "core/model/model.h"
#include "core/serving/serving_inputs.h"

namespace moed {

// Of answers that their clients have not taken, at most.
struct AnswerBytes {
  size_t stream = 0;  // of one that is streamed, what is not sent; beside the ids of its prompt
  size_t whole = 0;   // of one in one message; at least that of a stream with those
  size_t ended = 0;   // of all that have ended, together
};

// Of texts that are scored with alternatives: at most what running requests hold of them and what their ends are told with, each
// a vector of pairs for a token.
uint64_t ScoredAlternativesBytes(const StepEngineOptions& engine);

// One of several things that a part of the memory plan is made of.
struct MemoryTerm {
  std::string_view part;  // "tables", "queues"
  std::string_view name;
  uint64_t bytes = 0;
};

// Tokens of the largest step, and of the largest one whose activations have memory of their own; the cache lends the rest.
struct StepTokens {
  int most = 0;
  int own = 0;
};

// All of these are functions of plain data. `shares_of` is the budget of which queues and scratch take their shares.

ModelOptions OptionsOfModel(const ServingInputs& in, uint64_t shares_of, StepTokens tokens, int max_context);
StepEngineOptions OptionsOfEngine(const ServingInputs& in, uint64_t shares_of, const ModelOptions& model);
KvSpillSizes SizesOfSpill(const ServingInputs& in, const StepEngineOptions& engine);
AnswerBytes AnswersOf(uint64_t shares_of, const StepEngineOptions& engine);

// Text that waits to be tokenised: no more than requests that may wait can have, and no more than a share of the budget. A prompt
// that is longer is tokenised when no other waits, and refused with the tokens that it has.
size_t PromptQueueBytes(uint64_t shares_of, const StepEngineOptions& engine);
// What is known of the tools of all requests, which seldom have as much as one may have.
uint64_t BytesOfToolSchemas(const StepEngineOptions& engine);
// Of what answers must be, the vocabulary as a tree included.
uint64_t BytesOfFormats(uint64_t shares_of);
size_t TraceEvents(bool trace, uint64_t shares_of);  // 0 without a trace

// What "tables" and "queues" are made of.
std::vector<MemoryTerm> TermsOf(const ServingInputs& in, uint64_t shares_of, const StepEngineOptions& engine);
MemoryNeeds MeasureNeeds(const ServingInputs& in, uint64_t shares_of, const ModelOptions& model);

}  // namespace moed
