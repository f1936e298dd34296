#include "server/startup/serving_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/base/trace.h"
#include "core/engine/request_check.h"
#include "core/expert/cache/caching_provider.h"
#include "core/model/kv_pool.h"
#include "core/store/layout.h"

namespace moed {
namespace {

constexpr uint64_t kLeastPromptQueueBytes = 64 << 10;
constexpr uint64_t kMostPromptQueueBytes = 16 << 20;
constexpr uint64_t kPromptTokenBytes = 16;  // of text for a token of a prompt that waits; texts have 3 to 6, rare characters more
constexpr uint64_t kLargestBudget = uint64_t{1} << 50;
constexpr int kMostStepTokens = 512;
constexpr uint64_t kLentShare = 4;  // one part of the cache in so many is lent at most
constexpr uint64_t kMostTraceEvents = 1 << 16;
constexpr uint64_t kUnsentTokenBytes = 64;  // id, text and framing of one token that waits to be sent

// Tokens of the largest step, and of the largest one whose activations have memory of their own; the cache lends the rest.
struct StepTokens {
  int most = 0;
  int own = 0;
};

ModelOptions OptionsOfModel(const Config& config, uint64_t budget, const ModelSpec& spec, InputForms expert_inputs,
                            StepTokens tokens, int max_context) {
  // One pass over the output matrix serves the logits of all sessions, as far as they do not take more than a share of the
  // budget.
  const uint64_t row_bytes = static_cast<uint64_t>(spec.vocabulary) * sizeof(float);
  const int rows = static_cast<int>(std::clamp<uint64_t>(budget / 64 / row_bytes, 1, config.max_sessions));
  return {.max_step_tokens = tokens.most,
          .max_context = max_context,
          .logits_rows = rows,
          .own_step_tokens = tokens.own,
          .expert_inputs = expert_inputs};
}

// The most tokens up to `most` whose activations take no more than a share of the budget.
int TokensWithMemoryOfTheirOwn(const Config& config, uint64_t budget, const ModelSpec& spec, InputForms expert_inputs, int most) {
  for (int tokens = most; tokens > config.max_sessions; tokens /= 2) {
    const ModelOptions options = OptionsOfModel(config, budget, spec, expert_inputs, {tokens, tokens}, kKvPageTokens);
    if (Model::ScratchBytes(spec, options, config.threads) <= budget / 16) return tokens;
  }
  return config.max_sessions;
}

// Steps to plan with, the preferred first: all activations with memory of their own, where the cache then still has room for all
// experts; then as many tokens as are set, or up to 512, with memory of their own only for a step that answers share; at last no
// larger step than that. Where the cache lends nothing only the first.
std::vector<StepTokens> StepsToTry(const Config& config, uint64_t budget, const ModelSpec& spec, InputForms expert_inputs,
                                   bool lends) {
  const auto own = [&](int most) { return TokensWithMemoryOfTheirOwn(config, budget, spec, expert_inputs, most); };
  const int whole = config.prefill_chunk.value_or(own(kMostStepTokens));
  std::vector<StepTokens> steps = {{whole, whole}};
  if (!lends) return steps;
  const int shared = own(kSharedStepTokens);
  if (config.prefill_chunk.has_value()) {
    if (shared < whole) steps.push_back({whole, shared});
    return steps;
  }
  for (int tokens = kMostStepTokens; tokens > shared; tokens /= 2) steps.push_back({tokens, shared});
  steps.push_back({shared, shared});
  return steps;
}

// How many more of what `count` counts fit into `bytes`, from 4 to 64; the parts of the preset hold `sequence_bytes` for each.
int DefaultCount(StepEngineOptions options, int vocabulary, int StepEngineOptions::*count, uint64_t sequence_bytes,
                 uint64_t bytes) {
  const uint64_t none = StepEngine::MemoryBytes(options, vocabulary);
  ++(options.*count);
  const uint64_t each = std::max<uint64_t>(StepEngine::MemoryBytes(options, vocabulary) - none + sequence_bytes, 1);
  return static_cast<int>(std::clamp<uint64_t>(bytes / each, 4, 64));
}

StepEngineOptions OptionsOfEngine(const Config& config, uint64_t budget, const ModelSpec& spec, const PresetNeeds& preset,
                                  const ModelOptions& model) {
  const int max_context = model.max_context;
  StepEngineOptions options{.max_context = max_context,
                            .max_new_tokens = max_context - 1,
                            .max_sessions = config.max_sessions,
                            .queue_capacity = 0,
                            .max_step_tokens = model.max_step_tokens,
                            .max_kept_sessions = 0};
  const auto fitting = [&](int StepEngineOptions::*count, uint64_t bytes) {
    return DefaultCount(options, spec.vocabulary, count, preset.sequence_bytes, bytes);
  };
  const int waiting = fitting(&StepEngineOptions::queue_capacity, budget / 32);
  const int kept = fitting(&StepEngineOptions::max_kept_sessions, budget / 64);
  options.queue_capacity = config.queue_capacity.value_or(waiting);
  options.max_kept_sessions = config.max_kept_sessions.value_or(kept);
  return options;
}

// Text that waits to be tokenised: no more than requests that may wait can have, and no more than a share of the budget. A prompt
// that is longer is tokenised when no other waits, and refused with the tokens that it has.
size_t PromptQueueBytes(uint64_t budget, const StepEngineOptions& engine) {
  const auto requests = static_cast<uint64_t>(engine.max_sessions) + static_cast<uint64_t>(engine.queue_capacity);
  const uint64_t most = requests * static_cast<uint64_t>(engine.max_context) * kPromptTokenBytes;
  return std::clamp(std::min(most, budget / 128), kLeastPromptQueueBytes, kMostPromptQueueBytes);
}

// Of texts that are scored with alternatives: what running requests hold of them and what their ends are told with, each a vector
// of pairs for a token.
uint64_t ScoredAlternativesBytes(const StepEngineOptions& engine) {
  using Alternative = std::pair<TokenId, float>;
  constexpr uint64_t kTokenBytes = sizeof(std::vector<Alternative>) + 32;  // with what the allocator keeps
  const auto tokens = std::min<uint64_t>(static_cast<uint64_t>(engine.max_context), kMaxScoredAlternatives);
  const uint64_t alternatives = std::min<uint64_t>(tokens * kMaxTopLogprobs, kMaxScoredAlternatives);
  const uint64_t each = tokens * kTokenBytes + alternatives * sizeof(Alternative);
  // Ends come one after the other.
  return (static_cast<uint64_t>(engine.max_sessions) + 1) * each;
}

// Conversations that the parts of the preset may know at once: those that run, those that have run and wait, those that are kept.
uint64_t Sequences(const StepEngineOptions& engine) {
  return static_cast<uint64_t>(engine.max_sessions) + static_cast<uint64_t>(engine.queue_capacity) +
         static_cast<uint64_t>(engine.max_kept_sessions);
}

size_t TraceEvents(const Config& config, uint64_t budget) {
  return config.trace.empty() ? 0 : std::min<uint64_t>(budget / 32 / sizeof(TraceEvent), kMostTraceEvents);
}

MemoryNeeds MeasureNeeds(const Config& config, uint64_t budget, const StoreReader& store, const ModelSpec& spec,
                         uint64_t tokenizer_bytes, const PresetNeeds& preset, const ModelOptions& model) {
  const StoreDescription& description = store.description();
  const uint64_t experts =
      static_cast<uint64_t>(description.experts_per_layer) * description.moe_layers.size() * description.precisions.size();
  MemoryNeeds needs;
  needs.trunk = description.trunk_bytes;
  needs.tokenizer = tokenizer_bytes;
  const StepEngineOptions engine = OptionsOfEngine(config, budget, spec, preset, model);
  needs.lent = Model::LentBytes(spec, model);
  needs.scratch = Model::ScratchBytes(spec, model, config.threads);
  needs.tables = CachingProvider::CacheTableBytes(description) + preset.fixed_bytes + Sequences(engine) * preset.sequence_bytes +
                 preset.token_tables * TokenTableBytes(budget) + experts * kExpertParts * sizeof(uint64_t) +
                 description.trunk.size() * sizeof(TensorInfo);
  needs.queues = StepEngine::MemoryBytes(engine, spec.vocabulary) + ScoredAlternativesBytes(engine) +
                 PromptQueueBytes(budget, engine) +
                 static_cast<uint64_t>(config.max_sessions) * kMaxUnsentTokens * kUnsentTokenBytes +
                 TraceEvents(config, budget) * sizeof(TraceEvent);
  needs.kv_page = KvPool::PageBytes(spec, config.kv_format);
  needs.page_tokens = kKvPageTokens;
  needs.record = LargestRecordBytes(description);
  needs.all_experts = store.all_expert_bytes();
  needs.least_cache = preset.cache.least;
  needs.most_cache = preset.cache.most;
  needs.model_context = spec.max_positions;
  return needs;
}

// What a memory plan is made from, whatever the budget.
struct Planner {
  const Config& config;
  const StoreReader& store;
  const ModelSpec& spec;
  uint64_t tokenizer_bytes;
  PresetNeeds preset;
  InputForms expert_inputs = Model::ExpertInputs(store.description());

  struct Steps {
    MemoryPlan memory;
    StepTokens tokens;
  };

  // The plan of `budget` with shares (queues, scratch) as `shares_of` gives them.
  absl::StatusOr<MemoryPlan> Plan(uint64_t budget, uint64_t shares_of, StepTokens tokens, int max_context) const {
    const MemoryRequest request{.budget = budget,
                                .kv_budget = config.kv_budget,
                                .max_context = config.max_context,
                                .top_k = spec.top_k,
                                .max_sessions = config.max_sessions};
    const ModelOptions model = OptionsOfModel(config, shares_of, spec, expert_inputs, tokens, max_context);
    return PlanMemory(MeasureNeeds(config, shares_of, store, spec, tokenizer_bytes, preset, model), request);
  }
  // Scratch and queues grow with the context, which is what they leave room for: first as if they needed nothing for it, then for
  // the context that came out, which can only shrink.
  absl::StatusOr<MemoryPlan> Plan(uint64_t budget, StepTokens tokens) const {
    MOED_ASSIGN_OR_RETURN(const MemoryPlan loose, Plan(budget, budget, tokens, kKvPageTokens));
    return Plan(budget, budget, tokens, loose.max_context);
  }
  absl::StatusOr<Steps> Plan(uint64_t budget) const {
    std::vector<StepTokens> steps = StepsToTry(config, budget, spec, expert_inputs, preset.cache.lends);
    const StepTokens last = steps.back();
    steps.pop_back();
    for (const StepTokens tokens : steps) {
      absl::StatusOr<MemoryPlan> plan = Plan(budget, tokens);
      if (plan.ok() && Suits(*plan, tokens)) return Steps{*std::move(plan), tokens};
    }
    MOED_ASSIGN_OR_RETURN(MemoryPlan plan, Plan(budget, last));
    return Steps{std::move(plan), last};
  }
  bool Suits(const MemoryPlan& plan, StepTokens tokens) const {
    const ModelOptions model = OptionsOfModel(config, plan.budget, spec, expert_inputs, tokens, plan.max_context);
    return tokens.own == tokens.most ? plan.cache >= store.all_expert_bytes()
                                     : Model::LentBytes(spec, model) <= plan.cache / kLentShare;
  }
  // The shares shrink with the budget, so the smallest one that works is searched for. INVALID_ARGUMENT of the plan where none
  // does.
  absl::StatusOr<uint64_t> SmallestBudget() const {
    uint64_t works = 1 << 20;
    for (; !Plan(works).ok(); works *= 2) {
      if (works > kLargestBudget) return Plan(works).status();
    }
    uint64_t fails = works / 2;
    while (works - fails > 1) {
      const uint64_t middle = fails + (works - fails) / 2;
      (Plan(middle).ok() ? works : fails) = middle;
    }
    return works;
  }

  // RESOURCE_EXHAUSTED with the table of the smallest budget that works.
  absl::Status TooSmall(uint64_t budget) const {
    MOED_ASSIGN_OR_RETURN(const uint64_t smallest, SmallestBudget());
    MOED_ASSIGN_OR_RETURN(const Steps plan, Plan(smallest));
    return Plan(budget, smallest, plan.tokens, plan.memory.max_context).status();
  }
};

}  // namespace

uint64_t TokenTableBytes(uint64_t budget) { return std::min<uint64_t>(budget / 128, 8 << 20); }

absl::StatusOr<ServingPlan> PlanServing(const Config& config, uint64_t budget, const StoreReader& store, const ModelSpec& spec,
                                        uint64_t tokenizer_bytes, const PresetNeeds& preset) {
  const Planner planner{config, store, spec, tokenizer_bytes, preset};
  absl::StatusOr<Planner::Steps> steps = planner.Plan(budget);
  if (steps.status().code() == absl::StatusCode::kResourceExhausted) return planner.TooSmall(budget);
  MOED_RETURN_IF_ERROR(steps.status());
  ServingPlan plan;
  plan.memory = std::move(steps->memory);
  plan.model = OptionsOfModel(config, budget, spec, planner.expert_inputs, steps->tokens, plan.memory.max_context);
  plan.engine = OptionsOfEngine(config, budget, spec, preset, plan.model);
  plan.prompt_queue_bytes = PromptQueueBytes(budget, plan.engine);
  plan.trace_events = TraceEvents(config, budget);
  return plan;
}

}  // namespace moed
