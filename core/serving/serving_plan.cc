#include "core/serving/serving_plan.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/base/buffer.h"
#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/model/scratch.h"
#include "core/store/layout.h"

namespace moed {
namespace {

constexpr uint64_t kLargestBudget = uint64_t{1} << 50;
constexpr int kMostStepTokens = 4096;  // where the cache lends their activations
constexpr uint64_t kLentShare = 4;     // one part of the cache in so many is lent at most

// The most tokens up to `most` whose activations take no more than a share of the budget.
int TokensWithMemoryOfTheirOwn(const ServingInputs& in, uint64_t budget, int most) {
  for (int tokens = most; tokens > in.options.max_running; tokens /= 2) {
    const ModelOptions options = OptionsOfModel(in, budget, {tokens, tokens}, kKvPageTokens);
    const uint64_t of = in.device_budget ? std::min(budget, *in.device_budget) : budget;
    if (Model::ScratchBytes(in.spec, options, in.options.threads) <= of / 16) return tokens;
  }
  return in.options.max_running;
}

// Steps to plan with, the preferred first: all activations with memory of their own, where the cache then still has room for all
// experts; then as many tokens as are set, or up to 4096 of the context, with memory of their own only for a step that answers
// share; at last no larger step than that. Where the cache lends nothing only the first.
std::vector<StepTokens> StepsToTry(const ServingInputs& in, uint64_t budget) {
  const auto own = [&](int most) { return TokensWithMemoryOfTheirOwn(in, budget, most); };
  const int whole = in.options.prefill_chunk.value_or(own(kUsualStepTokens));
  std::vector<StepTokens> steps = {{whole, whole}};
  if (in.device_budget) {  // what the cache lends is not the device's
    for (int tokens = whole / 2; tokens >= in.options.max_running; tokens /= 2) steps.push_back({tokens, tokens});
    if (in.options.prefill_chunk) steps.resize(1);
  }
  if (!in.preset.cache.lends || in.device_budget) return steps;
  const int shared = own(SharedStepTokens(in.options.max_running));
  if (in.options.prefill_chunk.has_value()) {
    if (shared < whole) steps.push_back({whole, shared});
    return steps;
  }
  const auto context = static_cast<unsigned>(in.options.max_context.value_or(in.spec.max_positions));
  int tokens = std::clamp(static_cast<int>(std::bit_ceil(context)), kUsualStepTokens, kMostStepTokens);
  for (; tokens > shared; tokens /= 2) steps.push_back({tokens, shared});
  steps.push_back({shared, shared});
  return steps;
}

// Plans with budgets of its own choice; of `in` it does not look at the budget.
struct Planner {
  const ServingInputs& in;

  struct Steps {
    MemoryPlan memory;
    bool stored_embedding = false;
    StepTokens tokens;
  };

  // The plan of `budget` with shares (queues, scratch) as `shares_of` gives them.
  absl::StatusOr<MemoryPlan> Plan(uint64_t budget, uint64_t shares_of, StepTokens tokens, int max_context, bool stored) const {
    const MemoryRequest request{.budget = budget,
                                .device_budget = in.device_budget,
                                .kv_budget = in.options.kv_budget,
                                .max_context = in.options.max_context,
                                .top_k = in.spec.top_k,
                                .max_running = in.options.max_running,
                                .checkpoints = in.options.prefix_cache ? 2 * in.options.max_running : 0};
    ModelOptions model = OptionsOfModel(in, shares_of, tokens, max_context);
    model.stored_embedding = stored;
    return PlanMemory(MeasureNeeds(in, shares_of, model), request);
  }
  // The same for all that grows with the context: scratch, queues and slots are those of a context of so many tokens.
  absl::StatusOr<MemoryPlan> PlanFor(int max_context, uint64_t budget, StepTokens tokens, bool stored) const {
    MOED_ASSIGN_OR_RETURN(MemoryPlan plan, Plan(budget, budget, tokens, max_context, stored));
    plan.max_context = std::min(plan.max_context, max_context);
    return plan;
  }
  // With the longest context, in whole pages, that has room beside what grows with it; at most the one that would have room if
  // nothing did. One that is told is taken, or refused.
  absl::StatusOr<Steps> Plan(uint64_t budget, StepTokens tokens, bool stored) const {
    MOED_ASSIGN_OR_RETURN(const MemoryPlan loose, Plan(budget, budget, tokens, kKvPageTokens, stored));
    const int longest = loose.max_context;
    absl::StatusOr<MemoryPlan> plan = PlanFor(longest, budget, tokens, stored);
    const bool told = in.options.max_context || in.options.kv_budget;
    if (told || (plan.ok() && plan->max_context == longest)) return Settled(std::move(plan), stored, tokens);
    int fits = std::min(kLeastPositions, longest), too_long = longest;
    plan = PlanFor(fits, budget, tokens, stored);
    while (too_long - fits > kKvPageTokens) {
      const int middle = fits + DivideUp(too_long - fits, 2 * kKvPageTokens) * kKvPageTokens;
      absl::StatusOr<MemoryPlan> longer = PlanFor(middle, budget, tokens, stored);
      const bool holds = longer.ok() && longer->max_context == middle;
      (holds ? fits : too_long) = middle;
      if (holds) plan = std::move(longer);
    }
    return Settled(std::move(plan), stored, tokens);
  }
  static absl::StatusOr<Steps> Settled(absl::StatusOr<MemoryPlan> plan, bool stored, StepTokens tokens) {
    MOED_RETURN_IF_ERROR(plan.status());
    return Steps{*std::move(plan), stored, tokens};
  }
  absl::StatusOr<Steps> Plan(uint64_t budget, bool stored) const {
    std::vector<StepTokens> steps = StepsToTry(in, budget);
    const StepTokens last = steps.back();
    steps.pop_back();
    for (const StepTokens tokens : steps) {
      absl::StatusOr<Steps> plan = Plan(budget, tokens, stored);
      if (plan.ok() && Suits(plan->memory, tokens)) return plan;
    }
    return Plan(budget, last, stored);
  }
  // With the embedding where it is told to be; otherwise in the store where it leaves more room there for experts that are of
  // use, or as much and a longer context.
  absl::StatusOr<Steps> Plan(uint64_t budget) const {
    if (in.options.embedding == EmbeddingPlace::kStore) return Plan(budget, true);
    absl::StatusOr<Steps> in_memory = Plan(budget, false);
    if (in.options.embedding == EmbeddingPlace::kMemory || in.spec.tied_embeddings) return in_memory;
    absl::StatusOr<Steps> stored = Plan(budget, true);
    const auto gives = [&](const MemoryPlan& plan) {
      return std::pair(std::min(RoomIn(plan), UsefulExperts()), plan.max_context);
    };
    const bool gains = stored.ok() && (!in_memory.ok() || gives(stored->memory) > gives(in_memory->memory));
    return gains ? std::move(stored) : std::move(in_memory);
  }
  // For experts, where the embedding would be.
  uint64_t RoomIn(const MemoryPlan& plan) const { return in.device_budget ? plan.device_cache : plan.cache; }
  uint64_t UsefulExperts() const {
    const uint64_t all = AllRecordBytes(in.store, kReferencePrecision);
    return in.preset.cache.most == 0 ? all : std::min(all, in.preset.cache.most);
  }
  bool Suits(const MemoryPlan& plan, StepTokens tokens) const {
    const ModelOptions model = OptionsOfModel(in, plan.budget, tokens, plan.max_context);
    if (in.device_budget) return true;
    return tokens.own == tokens.most ? plan.cache >= AllRecordBytes(in.store, kReferencePrecision)
                                     : Model::LentBytes(in.spec, model) <= plan.cache / kLentShare;
  }
  // The plan of the smallest budget that works and `suits`; the shares shrink with the budget, so it is searched for.
  // INVALID_ARGUMENT of the plan where none works.
  absl::StatusOr<MemoryPlan> SmallestPlan(absl::FunctionRef<bool(const MemoryPlan&)> suits) const {
    const auto works = [&](uint64_t budget) {
      const absl::StatusOr<Steps> plan = Plan(budget);
      return plan.ok() && suits(plan->memory);
    };
    uint64_t most = 1 << 20;
    for (; !works(most); most *= 2) {
      if (most <= kLargestBudget) continue;
      MOED_RETURN_IF_ERROR(Plan(most).status());
      return Internal("no memory budget up to ", most, " bytes holds what it should");
    }
    uint64_t less = most / 2;
    while (most - less > 1) {
      const uint64_t middle = less + (most - less) / 2;
      (works(middle) ? most : less) = middle;
    }
    MOED_ASSIGN_OR_RETURN(Steps plan, Plan(most));
    return std::move(plan.memory);
  }
  absl::StatusOr<MemoryPlan> SmallestPlan() const {
    return SmallestPlan([](const MemoryPlan&) { return true; });
  }
  // In which experts that were read stay.
  absl::StatusOr<MemoryPlan> ComfortablePlan() const {
    return SmallestPlan([&](const MemoryPlan& plan) { return plan.cache >= UsefulExperts(); });
  }

  // RESOURCE_EXHAUSTED with the table of the smallest budget that works.
  absl::Status TooSmall(uint64_t budget) const {
    MOED_ASSIGN_OR_RETURN(const MemoryPlan smallest, SmallestPlan());
    return ResourceExhausted(
        "a memory budget of ", budget, " bytes (", FormatBytes(budget), ") is too small; at least needed are\n", smallest.Table(),
        "\nthe smallest budget that works: ", smallest.budget, " bytes (", FormatBytes(smallest.budget), ")");
  }
};

absl::Status CheckEmbeddingPlace(const ServingInputs& in) {
  if (in.options.embedding != EmbeddingPlace::kStore || !in.spec.tied_embeddings) return absl::OkStatus();
  return InvalidArgument("the embedding cannot stay in the store: it is the model's head as well, which every token reads whole");
}

}  // namespace

absl::StatusOr<ServingPlan> PlanServing(const ServingInputs& in) {
  MOED_RETURN_IF_ERROR(CheckEmbeddingPlace(in));
  const Planner planner{in};
  absl::StatusOr<Planner::Steps> steps = planner.Plan(in.budget);
  if (steps.status().code() == absl::StatusCode::kResourceExhausted) return planner.TooSmall(in.budget);
  MOED_RETURN_IF_ERROR(steps.status());
  ServingPlan plan;
  plan.memory = std::move(steps->memory);
  plan.kv = {.pages = plan.memory.kv_pages,
             .slots = plan.memory.kv_slots,
             .max_context = plan.memory.max_context,
             .format = in.options.kv_format};
  plan.running = plan.kv.slots == 0 ? in.options.max_running : std::min(in.options.max_running, plan.kv.slots);
  plan.model = OptionsOfModel(in, in.budget, steps->tokens, plan.memory.max_context);
  plan.model.stored_embedding = steps->stored_embedding;
  plan.engine = OptionsOfEngine(in, in.budget, plan.model);
  plan.kv_spill = SizesOfSpill(in, plan.engine);
  plan.terms = TermsOf(in, in.budget, plan.engine);
  plan.prompt_queue_bytes = PromptQueueBytes(in.budget, plan.engine) / 2;
  plan.answers = AnswersOf(in.budget, plan.engine);
  plan.format_bytes = BytesOfFormats(in.budget);
  plan.tool_schema_bytes = BytesOfToolSchemas(plan.engine);
  plan.trace_events = TraceEvents(in.trace, in.budget);
  return plan;
}

absl::StatusOr<ServingBudgets> FindServingBudgets(const ServingInputs& in) {
  MOED_RETURN_IF_ERROR(CheckEmbeddingPlace(in));
  const Planner planner{in};
  ServingBudgets budgets;
  MOED_ASSIGN_OR_RETURN(budgets.smallest, planner.SmallestPlan());
  MOED_ASSIGN_OR_RETURN(budgets.comfortable, planner.ComfortablePlan());
  return budgets;
}

}  // namespace moed
