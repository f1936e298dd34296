#include "server/startup/serving_plan.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/base/trace.h"
#include "core/engine/request_check.h"
#include "core/expert/cache/caching_provider.h"
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
constexpr uint64_t kOpenStoreBytes = 1024;  // the file and its reader

// Tokens of the largest step, and of the largest one whose activations have memory of their own; the cache lends the rest.
struct StepTokens {
  int most = 0;
  int own = 0;
};

ModelOptions OptionsOfModel(const ServingInputs& in, uint64_t budget, StepTokens tokens, int max_context) {
  // One pass over the output matrix serves the logits of all requests, as far as they do not take more than a share of the
  // budget.
  const uint64_t row_bytes = static_cast<uint64_t>(in.spec.vocabulary) * sizeof(float);
  const int rows = static_cast<int>(std::clamp<uint64_t>(budget / 64 / row_bytes, 1, in.flags.max_running));
  return {.max_step_tokens = tokens.most,
          .max_context = max_context,
          .logits_rows = rows,
          .own_step_tokens = tokens.own,
          .expert_inputs = Model::ExpertInputs(in.store)};
}

// The most tokens up to `most` whose activations take no more than a share of the budget.
int TokensWithMemoryOfTheirOwn(const ServingInputs& in, uint64_t budget, int most) {
  for (int tokens = most; tokens > in.flags.max_running; tokens /= 2) {
    const ModelOptions options = OptionsOfModel(in, budget, {tokens, tokens}, kKvPageTokens);
    if (Model::ScratchBytes(in.spec, options, in.flags.threads) <= budget / 16) return tokens;
  }
  return in.flags.max_running;
}

// Steps to plan with, the preferred first: all activations with memory of their own, where the cache then still has room for all
// experts; then as many tokens as are set, or up to 512, with memory of their own only for a step that answers share; at last no
// larger step than that. Where the cache lends nothing only the first.
std::vector<StepTokens> StepsToTry(const ServingInputs& in, uint64_t budget) {
  const auto own = [&](int most) { return TokensWithMemoryOfTheirOwn(in, budget, most); };
  const int whole = in.flags.prefill_chunk.value_or(own(kMostStepTokens));
  std::vector<StepTokens> steps = {{whole, whole}};
  if (!in.preset.cache.lends) return steps;
  const int shared = own(kSharedStepTokens);
  if (in.flags.prefill_chunk.has_value()) {
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

StepEngineOptions OptionsOfEngine(const ServingInputs& in, uint64_t budget, const ModelOptions& model) {
  const int max_context = model.max_context;
  StepEngineOptions options{.max_context = max_context,
                            .max_new_tokens = max_context - 1,
                            .max_running = in.flags.max_running,
                            .queue_capacity = 0,
                            .max_step_tokens = model.max_step_tokens,
                            .max_kept_sessions = 0};
  const auto fitting = [&](int StepEngineOptions::*count, uint64_t bytes) {
    return DefaultCount(options, in.spec.vocabulary, count, in.preset.sequence_bytes, bytes);
  };
  const int waiting = fitting(&StepEngineOptions::queue_capacity, budget / 32);
  const int kept = fitting(&StepEngineOptions::max_kept_sessions, budget / 64);
  options.queue_capacity = in.flags.queue_capacity.value_or(waiting);
  options.max_kept_sessions = in.flags.max_kept_sessions.value_or(kept);
  return options;
}

// Text that waits to be tokenised: no more than requests that may wait can have, and no more than a share of the budget. A prompt
// that is longer is tokenised when no other waits, and refused with the tokens that it has.
size_t PromptQueueBytes(uint64_t budget, const StepEngineOptions& engine) {
  const auto requests = static_cast<uint64_t>(engine.max_running) + static_cast<uint64_t>(engine.queue_capacity);
  const uint64_t most = requests * static_cast<uint64_t>(engine.max_context) * kPromptTokenBytes;
  return std::clamp(std::min(most, budget / 128), kLeastPromptQueueBytes, kMostPromptQueueBytes);
}

// Conversations that the parts of the preset may know at once: those that run, those that have run and wait, those that are kept.
uint64_t Sequences(const StepEngineOptions& engine) {
  return static_cast<uint64_t>(engine.max_running) + static_cast<uint64_t>(engine.queue_capacity) +
         static_cast<uint64_t>(engine.max_kept_sessions);
}

size_t TraceEvents(const Config& flags, uint64_t budget) {
  return flags.trace.empty() ? 0 : std::min<uint64_t>(budget / 32 / sizeof(TraceEvent), kMostTraceEvents);
}

// What an open store holds but for the tokenizer: its description, where every piece lies, and a checksum of each.
uint64_t StoreIndexBytes(const StoreDescription& store) {
  const uint64_t experts = static_cast<uint64_t>(store.experts_per_layer) * store.moe_layers.size() * store.precisions.size();
  // Vectors that are filled one by one have room for the next power of two.
  const uint64_t checksums = std::bit_ceil(store.trunk.size() + 1 + experts * kExpertParts);
  const uint64_t tensors = std::bit_ceil(store.trunk.size());
  uint64_t bytes = kOpenStoreBytes + checksums * sizeof(uint64_t) + tensors * (sizeof(Piece) + sizeof(TensorInfo)) +
                   store.model_spec.capacity() + store.moe_layers.capacity() * sizeof(LayerId) +
                   store.precisions.capacity() * sizeof(ExpertPrecision);
  for (const TensorInfo& tensor : store.trunk) bytes += tensor.name.capacity() + 1;
  for (const ExpertPrecision& precision : store.precisions) {
    bytes += precision.layers.capacity() * (sizeof(ExpertLayout) + FileLayout::kLayerBytes);
  }
  return bytes;
}

// What "tables" and "queues" are made of.
std::vector<MemoryTerm> TermsOf(const ServingInputs& in, uint64_t shares_of, const StepEngineOptions& engine) {
  const StoreDescription& store = in.store;
  const auto running = static_cast<uint64_t>(in.flags.max_running);
  return {{"tables", "cache entries", CachingProvider::CacheTableBytes(store)},
          {"tables", "policy, predictor, rule, mask", in.preset.fixed_bytes},
          {"tables", "what they know of conversations", Sequences(engine) * in.preset.sequence_bytes},
          {"tables", "what they learn of tokens", static_cast<uint64_t>(in.preset.token_tables) * TokenTableBytes(shares_of)},
          {"tables", "store index", StoreIndexBytes(store)},
          {"queues", "requests and conversations", StepEngine::MemoryBytes(engine, in.spec.vocabulary)},
          {"queues", "alternatives of scored texts", ScoredAlternativesBytes(engine)},
          {"queues", "texts to be tokenised", PromptQueueBytes(shares_of, engine)},
          {"queues", "tokens to be sent", running * kMaxUnsentTokens * kUnsentTokenBytes},
          {"queues", "trace", TraceEvents(in.flags, shares_of) * sizeof(TraceEvent)}};
}

uint64_t SumOf(const std::vector<MemoryTerm>& terms, std::string_view part) {
  uint64_t sum = 0;
  for (const MemoryTerm& term : terms) sum += term.part == part ? term.bytes : 0;
  return sum;
}

MemoryNeeds MeasureNeeds(const ServingInputs& in, uint64_t shares_of, const ModelOptions& model) {
  const StepEngineOptions engine = OptionsOfEngine(in, shares_of, model);
  const std::vector<MemoryTerm> terms = TermsOf(in, shares_of, engine);
  MemoryNeeds needs;
  needs.trunk = in.store.trunk_bytes;
  needs.tokenizer = in.tokenizer_bytes;
  needs.scratch = Model::ScratchBytes(in.spec, model, in.flags.threads);
  needs.tables = SumOf(terms, "tables");
  needs.queues = SumOf(terms, "queues");
  needs.kv_page = KvPool::PageBytes(in.spec, in.flags.kv_format);
  needs.kv_slot = KvPool::SlotBytes(in.spec, model.max_context, in.flags.kv_format);
  needs.page_tokens = kKvPageTokens;
  needs.record = LargestRecordBytes(in.store);
  needs.all_experts = AllRecordBytes(in.store, kReferencePrecision);
  needs.least_cache = in.preset.cache.least;
  needs.most_cache = in.preset.cache.most;
  needs.lent = Model::LentBytes(in.spec, model);
  needs.model_context = in.spec.max_positions;
  return needs;
}

// Plans with budgets of its own choice; of `in` it does not look at the budget.
struct Planner {
  const ServingInputs& in;

  struct Steps {
    MemoryPlan memory;
    StepTokens tokens;
    int counted_context = 0;  // so many requests and conversations as are planned for have this one
  };

  // The plan of `budget` with shares (queues, scratch) as `shares_of` gives them.
  absl::StatusOr<MemoryPlan> Plan(uint64_t budget, uint64_t shares_of, StepTokens tokens, int max_context) const {
    const MemoryRequest request{.budget = budget,
                                .kv_budget = in.flags.kv_budget,
                                .max_context = in.flags.max_context,
                                .top_k = in.spec.top_k,
                                .max_running = in.flags.max_running};
    const ModelOptions model = OptionsOfModel(in, shares_of, tokens, max_context);
    return PlanMemory(MeasureNeeds(in, shares_of, model), request);
  }
  // Scratch, queues and slots grow with the context, which is what they leave room for: first as if they needed nothing for it,
  // then for the context that came out, which can only shrink.
  absl::StatusOr<Steps> Plan(uint64_t budget, StepTokens tokens) const {
    MOED_ASSIGN_OR_RETURN(const MemoryPlan loose, Plan(budget, budget, tokens, kKvPageTokens));
    MOED_ASSIGN_OR_RETURN(MemoryPlan plan, Plan(budget, budget, tokens, loose.max_context));
    return Steps{std::move(plan), tokens, loose.max_context};
  }
  absl::StatusOr<Steps> Plan(uint64_t budget) const {
    std::vector<StepTokens> steps = StepsToTry(in, budget);
    const StepTokens last = steps.back();
    steps.pop_back();
    for (const StepTokens tokens : steps) {
      absl::StatusOr<Steps> plan = Plan(budget, tokens);
      if (plan.ok() && Suits(plan->memory, tokens)) return plan;
    }
    return Plan(budget, last);
  }
  bool Suits(const MemoryPlan& plan, StepTokens tokens) const {
    const ModelOptions model = OptionsOfModel(in, plan.budget, tokens, plan.max_context);
    return tokens.own == tokens.most ? plan.cache >= AllRecordBytes(in.store, kReferencePrecision)
                                     : Model::LentBytes(in.spec, model) <= plan.cache / kLentShare;
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
    return ResourceExhausted("a memory budget of ", budget, " bytes (", FormatBytes(budget),
                             ") is too small; at least needed are\n", plan.memory.Table(),
                             "\nthe smallest budget that works: ", smallest, " bytes (", FormatBytes(smallest), ")");
  }
};

}  // namespace

uint64_t ScoredAlternativesBytes(const StepEngineOptions& engine) {
  using Alternative = std::pair<TokenId, float>;
  constexpr uint64_t kTokenBytes = sizeof(std::vector<Alternative>) + 32;  // with what the allocator keeps
  const auto tokens = std::min<uint64_t>(static_cast<uint64_t>(engine.max_context), kMaxScoredAlternatives);
  const uint64_t alternatives = std::min<uint64_t>(tokens * kMaxTopLogprobs, kMaxScoredAlternatives);
  const uint64_t each = tokens * kTokenBytes + alternatives * sizeof(Alternative);
  // Ends come one after the other.
  return (static_cast<uint64_t>(engine.max_running) + 1) * each;
}

uint64_t TokenTableBytes(uint64_t budget) { return std::min<uint64_t>(budget / 128, 8 << 20); }

absl::StatusOr<ServingPlan> PlanServing(const ServingInputs& in) {
  const Planner planner{in};
  absl::StatusOr<Planner::Steps> steps = planner.Plan(in.budget);
  if (steps.status().code() == absl::StatusCode::kResourceExhausted) return planner.TooSmall(in.budget);
  MOED_RETURN_IF_ERROR(steps.status());
  ServingPlan plan;
  plan.memory = std::move(steps->memory);
  plan.kv = {.pages = plan.memory.kv_pages,
             .slots = plan.memory.kv_slots,
             .max_context = plan.memory.max_context,
             .format = in.flags.kv_format};
  plan.running = plan.kv.slots == 0 ? in.flags.max_running : std::min(in.flags.max_running, plan.kv.slots);
  plan.model = OptionsOfModel(in, in.budget, steps->tokens, plan.memory.max_context);
  // A shorter context would make room for more of them, which were not planned for.
  plan.engine = OptionsOfEngine(in, in.budget, OptionsOfModel(in, in.budget, steps->tokens, steps->counted_context));
  plan.engine.max_context = plan.memory.max_context;
  plan.engine.max_new_tokens = plan.memory.max_context - 1;
  plan.terms = TermsOf(in, in.budget, plan.engine);
  plan.prompt_queue_bytes = PromptQueueBytes(in.budget, plan.engine);
  plan.trace_events = TraceEvents(in.flags, in.budget);
  return plan;
}

}  // namespace moed
