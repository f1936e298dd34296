#include "core/serving/serving_needs.h"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/trace.h"
#include "core/engine/checkpoints.h"
#include "core/engine/prefix_cache.h"
#include "core/engine/request_check.h"
#include "core/expert/cache/caching_provider.h"
#include "core/expert/cache/decoding_threads.h"
#include "core/expert/routing_trace.h"
#include "core/model/scratch.h"
#include "core/store/layout.h"
#include "core/tokenizer/tokenizer.h"

namespace moed {
namespace {

constexpr uint64_t kLeastPromptQueueBytes = 64 << 10;
constexpr uint64_t kMostPromptQueueBytes = 16 << 20;
constexpr uint64_t kPromptTokenBytes = 16;  // of text for a token of a prompt that waits; texts have 3 to 6, rare characters more
constexpr uint64_t kLeastDeviceRecords = 2 * kMovesAtOnce;  // fewer experts on a device are mostly on their way
constexpr uint64_t kMostTraceEvents = 1 << 16;
constexpr uint64_t kBytesForTemplateByte = 64;  // parsed, of the text
constexpr uint64_t kOpenStoreBytes = 1024;      // the file and its reader

// How many more of what `count` counts fit into `bytes`, from 4 to 64; the parts of the preset hold `sequence_bytes` for each.
int DefaultCount(StepEngineOptions options, int vocabulary, int StepEngineOptions::*count, uint64_t sequence_bytes,
                 uint64_t bytes) {
  const uint64_t none = StepEngine::MemoryBytes(options, vocabulary);
  ++(options.*count);
  const uint64_t each = std::max<uint64_t>(StepEngine::MemoryBytes(options, vocabulary) - none + sequence_bytes, 1);
  return static_cast<int>(std::clamp<uint64_t>(bytes / each, 4, 64));
}

// Of the values of a conversation while a prompt is made of it, which is one at a time.
size_t ConversationBytes(uint64_t shares_of) { return std::clamp<uint64_t>(shares_of / 128, 64 << 10, 64 << 20); }

// What answers hold back that may become calls, up to three times while it grows.
uint64_t BytesOfCalls(const StepEngineOptions& engine) {
  constexpr uint64_t kCopies = 3, kTokenBytes = 8;  // of text; words have 3 to 6
  const auto held = std::min<uint64_t>(engine.request.held_answer_bytes, kTokenBytes * static_cast<uint64_t>(engine.max_context));
  return static_cast<uint64_t>(engine.max_running) * kCopies * held;
}

// A word may take a sixteenth of a text, or what a prompt of usual tokens is long: some tokenizers have no place to cut it.
RequestLimits LimitsOfRequests(uint64_t shares_of, uint64_t max_text_bytes, int max_context) {
  RequestLimits limits;
  limits.conversation_bytes = ConversationBytes(shares_of);
  limits.tool_schema_bytes = std::clamp<uint64_t>(shares_of / 4096, 2 << 10, 256 << 10);
  const auto usual_prompt = static_cast<uint64_t>(max_context) * kPromptTokenBytes;
  limits.text_bytes = limits.prompt_bytes = max_text_bytes;
  limits.word_bytes = std::min(max_text_bytes, std::max({limits.word_bytes, max_text_bytes / 16, usual_prompt}));
  limits.prompt_tokens = max_context;
  return limits;
}

// Conversations that the parts of the preset may know at once: those that run, those that have run and wait, those that are kept.
uint64_t Sequences(const StepEngineOptions& engine) {
  return static_cast<uint64_t>(engine.max_running) + static_cast<uint64_t>(engine.queue_capacity) +
         static_cast<uint64_t>(engine.max_kept_sessions);
}

// What a text takes on its way to tokens: itself, read, normalised, and its longest word. While a step of the normalizer makes it
// longer, what the step before made and what this one has made, twice while that grows, have up to 4 times its bytes each. One of
// each kind may wait, whatever its length.
uint64_t TextBytes(const RequestLimits& limits) {
  constexpr uint64_t kBytesForByte = 14 + 2;
  return kBytesForByte * limits.text_bytes + Tokenizer::EncodeScratchBytes(limits.word_bytes);
}

// Texts as long as they are by default are what the process needs beside the budget.
uint64_t LongTextBytes(const RequestLimits& limits) {
  const uint64_t usual = TextBytes(RequestLimits{});
  return std::max(TextBytes(limits), usual) - usual;
}

// Of a string that was filled once: strings grow to twice of what they hold without memory of their own.
uint64_t StringBytes(const std::string& text) { return std::max(text.size(), 2 * std::string().capacity()) + 1; }

// What an open store holds but for the tokenizer: its description, where every piece lies, and a checksum of each. Counted from
// sizes alone, so that it is the same for a store that is only planned.
uint64_t StoreIndexBytes(const StoreDescription& store) {
  const uint64_t experts = static_cast<uint64_t>(store.experts_per_layer) * store.moe_layers.size() * store.precisions.size();
  // Vectors that are filled one by one have room for the next power of two.
  const uint64_t checksums = std::bit_ceil(store.trunk.size() + 1 + experts * PartCount(store));
  const uint64_t tensors = std::bit_ceil(store.trunk.size());
  uint64_t bytes = kOpenStoreBytes + checksums * sizeof(uint64_t) + tensors * (sizeof(Piece) + sizeof(TensorInfo)) +
                   StringBytes(store.model_spec) + std::bit_ceil(store.moe_layers.size()) * sizeof(LayerId) +
                   std::bit_ceil(store.precisions.size()) * sizeof(ExpertPrecision);
  for (const TensorInfo& tensor : store.trunk) bytes += StringBytes(tensor.name);
  for (const ExpertPrecision& precision : store.precisions) {
    bytes += precision.layers.size() * (sizeof(ExpertLayout) + FileLayout::kLayerBytes);
  }
  if (store.coded())
    bytes +=
        (std::bit_ceil(store.coded_bytes.size()) * sizeof(uint64_t)) + store.coded_bytes.size() * FileLayout::kCodedSegmentBytes;
  return bytes;
}

uint64_t BytesOfMaps(const StoreDescription& store) {
  return kExpertMapsAtOnce * kExpertMapBytes * store.moe_layers.size() * static_cast<uint64_t>(store.experts_per_layer);
}

uint64_t SumOf(const std::vector<MemoryTerm>& terms, std::string_view part) {
  uint64_t sum = 0;
  for (const MemoryTerm& term : terms) sum += term.part == part ? term.bytes : 0;
  return sum;
}

}  // namespace

uint64_t ScoredAlternativesBytes(const StepEngineOptions& engine) {
  using Alternative = std::pair<TokenId, float>;
  constexpr uint64_t kTokenBytes = sizeof(std::vector<Alternative>) + 32;  // with what the allocator keeps
  const auto tokens = std::min<uint64_t>(static_cast<uint64_t>(engine.max_context), engine.request.scored_alternatives);
  const uint64_t alternatives = std::min<uint64_t>(tokens * engine.request.top_logprobs, engine.request.scored_alternatives);
  const uint64_t each = tokens * kTokenBytes + alternatives * sizeof(Alternative);
  // Ends come one after the other.
  return (static_cast<uint64_t>(engine.max_running) + 1) * each;
}

ModelOptions OptionsOfModel(const ServingInputs& in, uint64_t shares_of, StepTokens tokens, int max_context) {
  // One pass over the output matrix serves the logits of all requests, as far as they do not take more than a share of the
  // budget.
  const uint64_t row_bytes = static_cast<uint64_t>(in.spec.vocabulary) * sizeof(float);
  const int rows = static_cast<int>(std::clamp<uint64_t>(shares_of / 64 / row_bytes, 1, in.options.max_running));
  return {.max_step_tokens = tokens.most,
          .max_context = max_context,
          .logits_rows = rows,
          .own_step_tokens = tokens.own,
          .expert_inputs = Model::ExpertInputs(in.store),
          .fast_matmul = in.options.fast_matmul};
}

StepEngineOptions OptionsOfEngine(const ServingInputs& in, uint64_t shares_of, const ModelOptions& model) {
  const int max_context = model.max_context;
  StepEngineOptions options{.max_context = max_context,
                            .max_new_tokens = in.options.max_new_tokens,
                            .max_running = in.options.max_running,
                            .queue_capacity = 0,
                            .max_step_tokens = model.max_step_tokens,
                            .usual_step_tokens = in.options.prefill_chunk.value_or(kUsualStepTokens),
                            .logits_rows = model.logits_rows,
                            .max_kept_sessions = 0,
                            .prefix_cache = in.options.prefix_cache,
                            .prompt_lookup = in.options.prompt_lookup,
                            .request = LimitsOfRequests(shares_of, in.options.max_text_bytes, max_context),
                            .fast_matmul = in.options.fast_matmul,
                            .max_request_seconds = in.options.max_request_seconds};
  const auto fitting = [&](int StepEngineOptions::*count, uint64_t bytes) {
    return DefaultCount(options, in.spec.vocabulary, count, in.preset.sequence_bytes, bytes);
  };
  const int waiting = fitting(&StepEngineOptions::queue_capacity, shares_of / 32);
  const int kept = fitting(&StepEngineOptions::max_kept_sessions, shares_of / 64);
  options.queue_capacity = in.options.queue_capacity.value_or(waiting);
  options.max_kept_sessions = in.options.max_kept_sessions.value_or(kept);
  return options;
}

uint64_t BytesOfToolSchemas(const StepEngineOptions& engine) {
  constexpr uint64_t kWithMost = 16;
  const auto requests = static_cast<uint64_t>(engine.max_running) + static_cast<uint64_t>(engine.queue_capacity);
  return std::min(requests, kWithMost) * engine.request.tool_schema_bytes;
}

size_t PromptQueueBytes(uint64_t shares_of, const StepEngineOptions& engine) {
  const auto requests = static_cast<uint64_t>(engine.max_running) + static_cast<uint64_t>(engine.queue_capacity);
  const uint64_t most = requests * static_cast<uint64_t>(engine.max_context) * kPromptTokenBytes;
  return std::clamp(std::min(most, shares_of / 128), kLeastPromptQueueBytes, kMostPromptQueueBytes);
}

AnswerBytes AnswersOf(uint64_t shares_of, const StepEngineOptions& engine) {
  constexpr uint64_t kTokenBytes = 32;    // of an answer without alternatives: id, text and framing, as it grows
  constexpr uint64_t kPromptIdBytes = 8;  // of a prompt that a stream begins with, as it grows
  const auto context = static_cast<uint64_t>(engine.max_context);
  AnswerBytes answers;
  answers.stream = std::clamp<uint64_t>(shares_of / 1024, 8 << 10, 64 << 10);
  const uint64_t usual = std::clamp<uint64_t>(shares_of / 4096, answers.stream, 1 << 20);
  answers.whole = std::max({usual, kTokenBytes * context, answers.stream + kPromptIdBytes * context});
  answers.ended = static_cast<uint64_t>(engine.max_running) * answers.whole;
  return answers;
}

uint64_t BytesOfFormats(uint64_t shares_of) { return std::min<uint64_t>(shares_of / 64, 64 << 20); }

size_t TraceEvents(bool trace, uint64_t shares_of) {
  return trace ? std::min<uint64_t>(shares_of / 32 / sizeof(TraceEvent), kMostTraceEvents) : 0;
}

KvSpillSizes SizesOfSpill(const ServingInputs& in, const StepEngineOptions& engine) {
  return {.budget = in.options.kv_spill_budget.value_or(0),
          .page_bytes = KvPool::PageBytes(in.spec, in.options.kv_format),
          .slot_bytes = KvPool::SlotBytes(in.spec, engine.max_context, in.options.kv_format),
          .page_tokens = kKvPageTokens,
          .max_context = engine.max_context,
          .sessions = static_cast<int>(Sequences(engine)),
          .max_running = engine.max_running};
}

std::vector<MemoryTerm> TermsOf(const ServingInputs& in, uint64_t shares_of, const StepEngineOptions& engine) {
  const StoreDescription& store = in.store;
  const auto running = static_cast<uint64_t>(in.options.max_running);
  const AnswerBytes answers = AnswersOf(shares_of, engine);
  return {{"tables", "cache entries", CachingProvider::CacheTableBytes(store)},
          {"tables", "policy, predictor, rule, mask", in.preset.fixed_bytes},
          {"tables", "what they know of conversations", Sequences(engine) * in.preset.sequence_bytes},
          {"tables", "what they learn of tokens",
           static_cast<uint64_t>(in.preset.token_tables) * TokenTableBytes(shares_of, in.preset)},
          {"tables", "store index", StoreIndexBytes(store)},
          {"tables", "page tables", PageTableBytes(shares_of)},
          {"tables", "decoding of records", store.coded() ? DecodingThreads::kMemoryBytes : 0},
          {"tables", "chat template", kBytesForTemplateByte * in.chat_template_bytes},
          {"queues", "requests and conversations", StepEngine::MemoryBytes(engine, in.spec.vocabulary)},
          {"queues", "alternatives of scored texts", ScoredAlternativesBytes(engine)},
          {"queues", "texts to be tokenised", PromptQueueBytes(shares_of, engine) + LongTextBytes(engine.request)},
          {"queues", "conversations to be prompts", in.chat_template_bytes > 0 ? engine.request.conversation_bytes : 0},
          {"queues", "names in tools", in.chat_template_bytes > 0 ? BytesOfToolSchemas(engine) : 0},
          {"queues", "calls of tools in answers", in.chat_template_bytes > 0 ? BytesOfCalls(engine) : 0},
          {"queues", "formats of answers", BytesOfFormats(shares_of)},
          {"queues", "maps of experts", BytesOfMaps(store)},
          {"queues", "answers to be sent", running * answers.whole + answers.ended},
          {"queues", "trace", TraceEvents(in.trace, shares_of) * sizeof(TraceEvent)},
          {"queues", "recorded routing", in.records_routing ? RoutingRecorder::MemoryBytes(shares_of, running) : 0}};
}

MemoryNeeds MeasureNeeds(const ServingInputs& in, uint64_t shares_of, const ModelOptions& model) {
  const StepEngineOptions engine = OptionsOfEngine(in, shares_of, model);
  const std::vector<MemoryTerm> terms = TermsOf(in, shares_of, engine);
  MemoryNeeds needs;
  const Model::StoredEmbeddingBytes embedding =
      model.stored_embedding ? Model::BytesOfStoredEmbedding(in.store, in.spec) : Model::StoredEmbeddingBytes{};
  needs.trunk = in.store.trunk_bytes - embedding.left_out;
  needs.embedding = embedding.working + embedding.host;
  needs.embedding_in_store = embedding.left_out;
  needs.tokenizer = in.tokenizer_bytes;
  if (in.device_budget) {
    const ScratchSizes scratch = SeparateScratchBytes(in.spec, model, in.options.threads);
    needs.device_trunk = RoundUp(needs.trunk, kPageBytes);
    needs.device_embedding = embedding.working;
    needs.trunk = 0;
    needs.embedding = embedding.host;
    needs.scratch = scratch.shared;
    needs.device_scratch = scratch.working;
    if (in.preset.cache.lends) needs.least_device_cache = kLeastDeviceRecords * LargestRecordBytes(in.store);
  } else {
    needs.scratch = Model::ScratchBytes(in.spec, model, in.options.threads);
  }
  needs.tables = SumOf(terms, "tables");
  needs.queues = SumOf(terms, "queues");
  if (in.options.kv_spill_budget) needs.kv_spill = KvSpill::MemoryBytes(SizesOfSpill(in, engine));
  needs.kv_page = KvPool::PageBytes(in.spec, in.options.kv_format);
  needs.kv_slot = KvPool::SlotBytes(in.spec, model.max_context, in.options.kv_format);
  if (in.options.prefix_cache) {
    needs.kv_page_tables = PrefixCache::BytesForPage(kKvPageTokens);
    if (needs.kv_slot > 0) needs.kv_slot_tables = Checkpoints::BytesForSlot(kKvPageTokens);
    needs.kv_page += needs.kv_page_tables;
    needs.kv_slot += needs.kv_slot_tables;
  }
  needs.page_tokens = kKvPageTokens;
  needs.record = LargestRecordBytes(in.store);
  needs.all_experts = AllRecordBytes(in.store, kReferencePrecision);
  needs.least_cache = in.preset.cache.least;
  needs.most_cache = in.preset.cache.most;
  needs.lent = Model::LentBytes(in.spec, model);
  needs.model_context = in.options.max_context ? in.spec.max_positions : in.spec.UsualContext();
  return needs;
}

}  // namespace moed
