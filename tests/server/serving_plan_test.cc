// The memory plan against what the parts really hold: each of them is made as the plan says, and its bytes are counted. A program
// of its own (counted_memory.h).
#include "core/serving/serving_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/executor.h"
#include "core/base/status.h"
#include "core/chat/answer/tool_schemas.h"
#include "core/chat/json.h"
#include "core/chat/model_template.h"
#include "core/engine/checkpoints.h"
#include "core/engine/prefix_cache.h"
#include "core/engine/request_check.h"
#include "core/expert/cache/caching_provider.h"
#include "core/expert/cache/decoding_threads.h"
#include "core/expert/routing_trace.h"
#include "core/io/read_backend.h"
#include "core/kernels/backend.h"
#include "core/model/kv_pool.h"
#include "core/model/scratch.h"
#include "core/serving/serving_needs.h"
#include "core/store/store.h"
#include "core/tokenizer/chat_settings.h"
#include "core/tokenizer/tokenizer.h"
#include "server/rpc/chat_translation.h"
#include "server/startup/provider_builder.h"
#include "spdlog/spdlog.h"
#include "tests/server/counted_memory.h"
#include "tests/system/demo_rig.h"
#include "tests/temporary_folder.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::Le;

constexpr uint64_t kMiB = 1 << 20;

template <class T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::abort();
  }
  return *std::move(value);
}

GateFn GateOf(Model& model) {
  return [&model](LayerId layer, std::span<const float> hidden, std::span<float> probabilities) {
    model.GateProbabilities(layer, hidden, probabilities);
  };
}

struct PlanCase {
  std::string name;
  uint64_t budget;  // 0: the smallest that works
  std::function<void(Config&)> change = [](Config&) {};
  int window = 0;  // that every other layer has; 0: none
  int coded = 0;   // of the store; 0: not
};

const PlanCase kCases[] = {
    {"smallest", 0},
    {"smallestWithAContext", 0, [](Config& c) { c.serving.max_context = 200; }},
    {"smallestOfOne", 0,
     [](Config& c) {
       c.serving.max_running = 1, c.serving.queue_capacity = 0, c.serving.max_kept_sessions = 0, c.serving.max_context = 64;
     }},
    {"smallestThatLends", 0, [](Config& c) { c.serving.prefill_chunk = 256, c.serving.max_context = 300; }},
    {"smallestOnDemand", 0, [](Config& c) { c.preset.preset = "load-on-demand", c.serving.max_context = 64; }},
    {"smallestWithAllOfThem", 0, [](Config& c) { c.preset.preset = "io-free", c.serving.max_context = 64; }},
    {"small", 8 * kMiB},
    {"smallWithAContext", 8 * kMiB, [](Config& c) { c.serving.max_context = 128; }},
    {"lent", 10 * kMiB, [](Config& c) { c.serving.max_context = 256, c.serving.max_running = 2; }},
    {"withRoomForMore", 24 * kMiB},
    {"withRoomForAll", 200 * kMiB},
    {"large", 64 * kMiB, [](Config& c) { c.serving.max_context = 512; }},
    {"manySessions", 64 * kMiB,
     [](Config& c) { c.serving.max_running = 32, c.serving.queue_capacity = 100, c.serving.max_kept_sessions = 100; }},
    {"manySessionsWithAContext", 64 * kMiB,
     [](Config& c) {
       c.serving.max_running = 32, c.serving.queue_capacity = 100, c.serving.max_kept_sessions = 50, c.serving.max_context = 300;
     }},
    {"threads", 32 * kMiB, [](Config& c) { c.serving.threads = 4, c.serving.max_context = 100; }},
    {"chunk", 32 * kMiB, [](Config& c) { c.serving.prefill_chunk = 16, c.serving.max_context = 100; }},
    {"keysAndValues", 32 * kMiB,
     [](Config& c) { c.serving.kv_budget = 2 * kMiB, c.serving.kv_format = KvFormat::kF32, c.serving.max_context = 100; }},
    {"eightBits", 32 * kMiB, [](Config& c) { c.serving.kv_format = KvFormat::kQ8, c.serving.max_context = 100; }},
    {"trace", 32 * kMiB, [](Config& c) { c.trace = "trace.json", c.serving.max_context = 100; }},
    {"hobbit", 16 * kMiB, [](Config& c) { c.preset.preset = "hobbit", c.serving.max_context = 100; }},
    {"fate", 16 * kMiB, [](Config& c) { c.preset.preset = "fate", c.serving.max_context = 100; }},
    {"onDemand", 16 * kMiB, [](Config& c) { c.preset.preset = "load-on-demand", c.serving.max_context = 100; }},
    {"paths", 16 * kMiB, [](Config& c) { c.preset.predictor = "activation-path", c.serving.max_context = 100; }},
    {"tokens", 16 * kMiB, [](Config& c) { c.preset.predictor = "token-id", c.serving.max_context = 100; }},
    {"smallestWithWindows", 0, [](Config&) {}, 40},
    {"smallestWithWindowsAndAContext", 0, [](Config& c) { c.serving.max_context = 400; }, 40},
    {"windows", 32 * kMiB, [](Config&) {}, 40},
    {"windowsAndAContext", 32 * kMiB, [](Config& c) { c.serving.max_context = 500; }, 40},
    {"windowsBeyondTheContext", 32 * kMiB, [](Config& c) { c.serving.max_context = 100; }, 1000},
    {"windowsInKeysAndValues", 32 * kMiB, [](Config& c) { c.serving.kv_budget = 2 * kMiB, c.serving.max_context = 300; }, 40},
    {.name = "smallestOfCodedRecords", .budget = 0, .coded = 1},
    {.name = "codedRecords", .budget = 32 * kMiB, .coded = 1},
};

class ServingPlanTest : public ::testing::TestWithParam<PlanCase> {
 protected:
  void SetUp() override {
    spdlog::set_level(spdlog::level::off);
    config_.store = StorePath();
    GetParam().change(config_);
    store_growth_ = GrowthOf([&] { store_ = Must(StoreReader::Open(StorePath())); });
    std::string blob = store_->TakeTokenizer();
    chat_ = Must(ChatSettingsOf(blob));
    const uint64_t blob_bytes = blob.capacity();
    store_growth_.heap -= blob_bytes;
    tokenizer_growth_ = GrowthOf([&] { tokenizer_ = Must(Tokenizer::FromBlob(std::move(blob))); });
    tokenizer_growth_.heap += blob_bytes;
    spec_ = Must(SpecFromJson(store_->description().model_spec));
    for (int layer = 0; GetParam().window > 0 && layer < spec_.layers; ++layer) {
      spec_.windows.push_back(layer % 2 == 0 ? GetParam().window : 0);
    }
    builder_ = Must(ProviderBuilder::Choose(config_, *store_, spec_));
    needs_ = builder_->Needs();
    budget_ = GetParam().budget == 0 ? Smallest() : GetParam().budget;
    plan_ = Must(PlanServing(Inputs(budget_)));
  }

  // In two precisions.
  static const std::string& StorePath() { return testing::DemoStorePath("q8,q4", GetParam().coded); }

  ServingInputs Inputs(uint64_t budget) const {
    return {budget,
            config_.serving,
            store_->description(),
            spec_,
            tokenizer_->memory_bytes(),
            chat_.chat_template.size(),
            needs_,
            !config_.trace.empty(),
            std::nullopt,
            !config_.record_routing.empty()};
  }
  uint64_t Smallest() const {
    const std::string message(PlanServing(Inputs(1)).status().message());
    constexpr std::string_view kBefore = "the smallest budget that works: ";
    const size_t at = message.find(kBefore);
    EXPECT_NE(at, std::string::npos) << message;
    return std::stoull(message.substr(at + kBefore.size()));
  }

  uint64_t Part(std::string_view name) const {
    for (const MemoryPart& part : plan_.memory.parts) {
      if (part.name == name) return part.bytes;
    }
    ADD_FAILURE() << "no part " << name;
    return 0;
  }
  uint64_t Term(std::string_view part, std::string_view name) const {
    for (const MemoryTerm& term : plan_.terms) {
      if (term.part == part && term.name == name) return term.bytes;
    }
    ADD_FAILURE() << "no term " << name;
    return 0;
  }
  uint64_t Terms(std::string_view part) const {
    uint64_t sum = 0;
    for (const MemoryTerm& term : plan_.terms) sum += term.part == part ? term.bytes : 0;
    return sum;
  }
  // Whatever grows with the context was planned for the one that came out.
  void ExpectPlanned(std::string_view part, uint64_t bytes) const { EXPECT_EQ(Part(part), bytes) << part; }

  // The prefix cache's tables, which the pages' part has room for.
  uint64_t PrefixBytes() const {
    return plan_.memory.kv_pages * PrefixCache::BytesForPage(kKvPageTokens) +
           plan_.memory.kv_slots * Checkpoints::BytesForSlot(kKvPageTokens);
  }

  Config config_;
  std::unique_ptr<StoreReader> store_;
  Growth store_growth_, tokenizer_growth_;
  ModelSpec spec_;
  ChatSettings chat_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ReadBackend> reads_;  // outlives the provider
  std::unique_ptr<ProviderBuilder> builder_;
  PresetNeeds needs_;
  uint64_t budget_ = 0;
  ServingPlan plan_;
};

TEST_P(ServingPlanTest, PartsAreWithinTheBudget) {
  uint64_t sum = 0;
  for (const MemoryPart& part : plan_.memory.parts) sum += part.bytes;
  EXPECT_LE(sum, budget_);
  EXPECT_EQ(plan_.memory.parts.size(), 7u) << "a part that this test does not know";
  ExpectPlanned("tables", Terms("tables"));
  ExpectPlanned("queues", Terms("queues"));
  EXPECT_EQ(plan_.memory.max_context, config_.serving.max_context.value_or(plan_.memory.max_context));
}

TEST_P(ServingPlanTest, BelowTheSmallestBudgetNothingWorks) {
  const uint64_t smallest = Smallest();
  EXPECT_TRUE(PlanServing(Inputs(smallest)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(PlanServing(Inputs(smallest - 1)).status()));
}

TEST_P(ServingPlanTest, ADeviceWithMemoryOfItsOwnHasABudgetOfItsOwn) {
  constexpr uint64_t kBudget = 64 * kMiB;
  ServingInputs in = Inputs(kBudget);
  in.device_budget = kBudget;
  const ServingPlan plan = Must(PlanServing(in));
  const auto sum = [](const std::vector<MemoryPart>& parts) {
    uint64_t bytes = 0;
    for (const MemoryPart& part : parts) bytes += part.bytes;
    return bytes;
  };
  const uint64_t kv = static_cast<uint64_t>(plan.kv.pages) * KvPool::PageBytes(spec_, plan.kv.format) +
                      static_cast<uint64_t>(plan.kv.slots) * KvPool::SlotBytes(spec_, plan.kv.max_context, plan.kv.format);
  const ScratchSizes scratch = SeparateScratchBytes(spec_, plan.model, config_.serving.threads);
  EXPECT_EQ(plan.model.own_step_tokens, plan.model.max_step_tokens) << "what the cache lends is not the device's";
  EXPECT_GE(sum(plan.memory.device_parts), RoundUp(store_->description().trunk_bytes, kPageBytes) + kv + scratch.working);
  EXPECT_LE(sum(plan.memory.device_parts), kBudget);
  EXPECT_LE(sum(plan.memory.parts), kBudget);
  in.device_budget = 1;
  const absl::Status refused = PlanServing(in).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("a device budget of 1 bytes"));
}

TEST_P(ServingPlanTest, TheTokenizerIsAllThere) {
  EXPECT_EQ(Part("tokenizer"), tokenizer_->memory_bytes());
  EXPECT_GE(Part("tokenizer"), tokenizer_growth_.heap);
}

TEST_P(ServingPlanTest, TheStoreIndexIsAllThere) {
  EXPECT_GE(Term("tables", "store index"), store_growth_.heap);
  EXPECT_LT(Term("tables", "store index"), store_growth_.heap + kPageBytes);
  EXPECT_EQ(store_->description().coded(), GetParam().coded > 0);
  EXPECT_EQ(Term("tables", "decoding of records"), GetParam().coded > 0 ? DecodingThreads::kMemoryBytes : 0);
}

// Keys and values, trunk and activations, and the cache: whole pages of the kernel's.
TEST_P(ServingPlanTest, MappedPartsHoldWhatIsPlanned) {
  const auto executor = MakeThreadPool(config_.serving.threads);
  const auto backend = Must(MakeComputeBackend("scalar", *executor));
  std::unique_ptr<KvPool> kv;
  const uint64_t kv_bytes = GrowthOf([&] { kv = Must(KvPool::Create(spec_, plan_.kv)); }).mapped;
  ExpectPlanned("kv", kv_bytes + PrefixBytes());
  EXPECT_EQ(plan_.memory.kv, Part("kv"));
  EXPECT_EQ(kv->slots() > 0, !spec_.windows.empty());
  EXPECT_GE(kv->pages(), KvPool::PagesFor(plan_.memory.max_context));

  std::unique_ptr<Model> model;
  const Growth loaded = GrowthOf([&] { model = Must(Model::Load({*store_, spec_, *backend, *kv}, plan_.model)); });
  ExpectPlanned("scratch", loaded.mapped - RoundUp(store_->description().trunk_bytes, kPageBytes));
  EXPECT_THAT(Part("trunk"), AllOf(Ge(model->trunk_bytes()), Gt(loaded.mapped - Part("scratch") - kPageBytes)));

  reads_ = Must(OpenReadBackend("buffered", StorePath(), {}));
  const Growth provider = GrowthOf([&] {
    EXPECT_TRUE(
        builder_->Open({GateOf(*model), *reads_, Clock::Real(), backend->memory().shared(), {}, nullptr, plan_.memory}).ok());
  });
  // The cache is mapped when the first expert is read.
  KvSequence sequence;
  ASSERT_TRUE(kv->Reserve(sequence, 1));
  const TokenId token(1);
  SequenceChunk chunk{.sequence = SequenceId(1), .tokens = std::span(&token, 1), .kv = &sequence};
  const Growth used = GrowthOf([&] {
    builder_->provider().OnSequenceStart(chunk.sequence);
    model->Forward(std::span(&chunk, 1), builder_->provider(), [](int, int, std::span<float>) {});
    builder_->provider().OnSequenceEnd(chunk.sequence);
  });
  EXPECT_TRUE(chunk.status.ok()) << chunk.status;
  EXPECT_EQ(plan_.memory.cache, Part("cache"));
  EXPECT_THAT(provider.mapped + used.mapped, AllOf(Le(Part("cache")), Gt(Part("cache") - kPageBytes)));
  EXPECT_LE(provider.heap, Part("tables") - Term("tables", "what they know of conversations"));
  const auto lent = builder_->provider().Lend(Model::LentBytes(spec_, plan_.model));
  EXPECT_TRUE(lent.ok()) << lent.status();
  uint64_t record = 0;
  for (const ExpertPrecision& precision : store_->description().precisions)
    record = std::max(record, LargestRecordBytes(precision));
  EXPECT_GE(Part("cache"), std::max(record, needs_.cache.least) + Model::LentBytes(spec_, plan_.model));
}

// Of the same positions a model with windows keeps no more than its other layers and what the windows see.
TEST_P(ServingPlanTest, WindowsTakeWhatTheySee) {
  if (spec_.windows.empty()) {
    EXPECT_EQ(plan_.memory.kv_slots, 0);
    const uint64_t pages = plan_.memory.kv_pages * KvPool::PageBytes(spec_, config_.serving.kv_format);
    EXPECT_EQ(plan_.memory.kv, pages + PrefixBytes());
    EXPECT_EQ(plan_.running, config_.serving.max_running);
    return;
  }
  ModelSpec without = spec_;
  without.windows.clear();
  const uint64_t page = KvPool::PageBytes(without, config_.serving.kv_format);
  const auto windowed = std::count_if(spec_.windows.begin(), spec_.windows.end(), [](int window) { return window > 0; });
  const uint64_t of_layer = page / spec_.layers;
  const int seen = std::min(KvPool::PagesFor(plan_.memory.max_context), (GetParam().window - 1 + 64 + 62) / 64 + 1);
  const uint64_t expected = plan_.memory.kv_pages * (spec_.layers - windowed) * of_layer +
                            static_cast<uint64_t>(plan_.memory.kv_slots * seen * windowed) * of_layer;
  ExpectPlanned("kv", expected + PrefixBytes());
  EXPECT_GE(plan_.memory.kv_slots, 1);
  EXPECT_EQ(plan_.running, std::min(config_.serving.max_running, plan_.memory.kv_slots));
}

TEST_P(ServingPlanTest, TablesHoldWhatIsPlanned) {
  const uint64_t conversations = static_cast<uint64_t>(plan_.engine.max_running) + plan_.engine.queue_capacity +
                                 static_cast<uint64_t>(plan_.engine.max_kept_sessions);
  EXPECT_EQ(Term("tables", "cache entries"), CachingProvider::CacheTableBytes(store_->description()));
  EXPECT_EQ(Term("tables", "policy, predictor, rule, mask"), needs_.fixed_bytes);
  EXPECT_EQ(Term("tables", "what they know of conversations"), conversations * needs_.sequence_bytes);
  EXPECT_EQ(Term("tables", "page tables"), PageTableBytes(budget_));
  EXPECT_EQ(Term("tables", "what they learn of tokens"), needs_.token_tables * TokenTableBytes(budget_, needs_));
}

class Silent final : public RequestObserver {
 public:
  void OnStarted(int, int) override {}
  void OnTokens(TokenDelta) override {}
  void OnFinish(const FinishInfo&) override {}
};

// The longest prompts with all that may be said of how they end, as many as are admitted.
TEST_P(ServingPlanTest, RequestsHoldWhatIsPlanned) {
  const auto executor = MakeThreadPool(1);
  const auto backend = Must(MakeComputeBackend("scalar", *executor));
  const auto kv = Must(KvPool::Create(spec_, plan_.kv));
  const auto model = Must(Model::Load({*store_, spec_, *backend, *kv}, plan_.model));
  reads_ = Must(OpenReadBackend("buffered", StorePath(), {}));
  ASSERT_TRUE(
      builder_->Open({GateOf(*model), *reads_, Clock::Real(), backend->memory().shared(), {}, nullptr, plan_.memory}).ok());
  const EngineParts parts{*model, builder_->provider(), *kv, *tokenizer_, Clock::Real(), nullptr};
  const auto observer = std::make_shared<Silent>();
  std::unique_ptr<StepEngine> engine;
  const Growth growth = GrowthOf([&] {
    engine = Must(StepEngine::Create(plan_.engine, parts));
    for (int i = 0; i < plan_.engine.max_running + plan_.engine.queue_capacity; ++i) {
      EngineRequest request;
      request.name = StrCat("request ", i);
      request.prompt.assign(static_cast<size_t>(plan_.engine.max_context) - 1, TokenId(1));
      const RequestLimits& limits = plan_.engine.request;
      request.stopping.stop_strings.assign(limits.stop_strings, std::string(limits.stop_string_bytes, 'x'));
      request.stopping.stop_tokens.assign(limits.stop_tokens, TokenId(1));
      request.sampling.logit_bias.assign(limits.logit_biases, {TokenId(1), 0});
      const auto id = engine->Submit(std::move(request), observer);
      ASSERT_TRUE(id.ok()) << id.status();
    }
  });
  EXPECT_LE(growth.heap, Term("queues", "requests and conversations") + PrefixBytes());
}

TEST_P(ServingPlanTest, QueuesHoldWhatIsPlanned) {
  EXPECT_EQ(Term("queues", "requests and conversations"), StepEngine::MemoryBytes(plan_.engine, spec_.vocabulary));
  EXPECT_EQ(Term("queues", "texts to be tokenised") / 2, plan_.prompt_queue_bytes);
  EXPECT_EQ(Term("queues", "answers to be sent"),
            static_cast<uint64_t>(config_.serving.max_running) * plan_.answers.whole + plan_.answers.ended);
  std::unique_ptr<Trace> trace;
  EXPECT_EQ(Term("queues", "trace") + sizeof(Trace),
            GrowthOf([&] { trace = std::make_unique<Trace>(Clock::Real(), plan_.trace_events); }).heap);
  EXPECT_EQ(config_.trace.empty(), plan_.trace_events == 0);
}

TEST_P(ServingPlanTest, RecordedRoutingHoldsWhatIsPlanned) {
  EXPECT_EQ(Term("queues", "recorded routing"), 0u) << "nothing is recorded";
  ServingInputs in = Inputs(256 * kMiB);
  in.records_routing = true;
  plan_ = Must(PlanServing(in));
  const uint64_t planned = Term("queues", "recorded routing");
  const TemporaryFolder folder;
  const RoutingShape shape{store_->description().moe_layers, spec_.top_k, spec_.experts};
  std::unique_ptr<RoutingRecorder> recorder = Must(RoutingRecorder::Create(folder / "trace", shape, in.budget));
  const std::vector<ExpertChoice> choices(static_cast<size_t>(spec_.top_k));
  const Growth growth = GrowthOf([&] {
    for (int sequence = 0; sequence < config_.serving.max_running; ++sequence) {
      const TokenRouting tokens[] = {{.sequence = SequenceId(sequence), .phase = Phase::kDecode, .choices = choices}};
      for (const LayerId layer : shape.layers) recorder->OnRouted({layer, tokens});
    }
  });
  EXPECT_LE(growth.heap, planned);
  EXPECT_GT(growth.heap, planned / 4);
}

// The template, and a conversation while a prompt is made of it, whatever takes the most memory for its bytes.
TEST_P(ServingPlanTest, ConversationsHoldWhatIsPlanned) {
  std::optional<chat::ModelTemplate> of_store;
  const Growth parsed = GrowthOf([&] { of_store = Must(chat::ModelTemplate::Parse(chat_.chat_template, chat_.named_tokens)); });
  EXPECT_LE(parsed.heap, Term("tables", "chat template"));
  const RequestLimits& limits = plan_.engine.request;
  EXPECT_EQ(Term("queues", "conversations to be prompts"), limits.conversation_bytes);
  const auto greedy = Must(chat::ModelTemplate::Parse(
      "{% set ns = namespace(y=[x]) %}{% for i in range(99) %}{% set ns.y = ns.y + [x|list] + ns.y %}{% endfor %}", ""));
  LoadedModel model;
  model.chat = &greedy;
  for (const std::string_view json : {"[],", "{},", "{\"a\":[]},", "0,", "\"\",", "[[[]]],"}) {
    for (const size_t bytes : {limits.variables_bytes / 64, limits.variables_bytes}) {
      std::string variables = "{\"x\": [";
      while (variables.size() < bytes) variables += json;
      moe::v1::ChatRequest request;
      request.set_template_variables(variables + "0]}");
      request.add_messages()->set_role("user");
      const int64_t before = heap_peak = heap_bytes.load();
      auto pending = TranslateChat(std::move(request), model, limits);
      if (pending.ok()) {
        chat::RenderOptions options;
        options.limits.memory_bytes = pending->conversation->room;
        EXPECT_EQ(greedy.Render(pending->conversation->variables, options).status().code(), absl::StatusCode::kResourceExhausted);
      }
      EXPECT_LE(static_cast<uint64_t>(heap_peak - before), limits.conversation_bytes + kPageBytes) << json << bytes;
    }
  }
}

// What a request holds that scores a text of this context, with as many alternatives as it may ask for.
TEST_P(ServingPlanTest, AlternativesOfScoredTextsHoldWhatIsPlanned) {
  using Alternatives = std::vector<std::vector<std::pair<TokenId, float>>>;
  uint64_t most = 0;
  for (int alternatives = 1; alternatives <= plan_.engine.request.top_logprobs; ++alternatives) {
    const auto tokens =
        static_cast<size_t>(std::min(plan_.engine.max_context, plan_.engine.request.scored_alternatives / alternatives));
    auto held = std::make_unique<Alternatives>();
    const Growth growth = GrowthOf([&] {
      held->reserve(tokens);
      for (size_t i = 0; i < tokens; ++i) held->emplace_back(alternatives);
    });
    most = std::max(most, growth.heap);
  }
  const auto answers = static_cast<uint64_t>(plan_.engine.max_running) + 1;
  EXPECT_GE(ScoredAlternativesBytes(plan_.engine), answers * most);
  EXPECT_EQ(Term("queues", "alternatives of scored texts"), ScoredAlternativesBytes(plan_.engine));
}

// What parser and reader of an answer hold of the tools, whatever their names are.
TEST(ToolsOfAnswersTest, HoldWhatIsCounted) {
  for (const size_t name_bytes : {1, 15, 16, 100}) {
    for (const int parameters : {0, 1, 7, 8, 200}) {
      std::string properties;
      for (int i = 0; i < parameters; ++i) {
        properties += StrCat(i == 0 ? "" : ",", "\"", i, std::string(name_bytes, 'x'), "\":{\"type\":\"string\"}");
      }
      const std::string tool = StrCat(R"({"name":"f","parameters":{"properties":{)", properties, "}}}");
      const chat::Value tools = *chat::ValueFromJson(StrCat("[", tool, "]"));
      std::optional<chat::ToolSchemas> parser, reader;
      const Growth growth = GrowthOf([&] {
        parser.emplace(tools);
        reader = parser;
      });
      EXPECT_LE(growth.heap, chat::ToolSchemas::BytesOf(tools)) << name_bytes << " " << parameters;
    }
  }
}

// What is planned for each is a whole answer.
TEST(AnswersTest, AStreamAndTheIdsOfItsPromptTakeNoMoreThanAWholeAnswer) {
  constexpr int kIdBytes = 2 * 3;  // encoded, as it grows
  for (const uint64_t budget : {1 << 20, 16 << 20, 128 << 20, 1 << 30}) {
    for (const int context : {16, 256, 2048, 1 << 17}) {
      const AnswerBytes answers = AnswersOf(budget, {.max_context = context});
      EXPECT_LE(answers.stream + static_cast<size_t>(kIdBytes * context), answers.whole) << budget << " " << context;
    }
  }
}

// So that a failure names its case.
void PrintTo(const PlanCase& plan_case, std::ostream* out) { *out << plan_case.name; }

INSTANTIATE_TEST_SUITE_P(Cases, ServingPlanTest, ::testing::ValuesIn(kCases), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace moed
