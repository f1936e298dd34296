#include "tests/engine/engine_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>

#include "core/base/check.h"
#include "core/engine/sampler.h"

namespace moed {
namespace {

ModelSpec FakeSpec(int window, bool state) {
  ModelSpec spec;
  spec.layers = spec.heads = spec.kv_heads = spec.head_dim = spec.hidden = 1;
  if (window > 0) spec.layers = 2, spec.windows = {0, window};
  if (state) {
    spec.recurrent.resize(static_cast<size_t>(spec.layers));
    spec.recurrent.push_back(true);
    if (window > 0) spec.windows.push_back(0);
    ++spec.layers;
    spec.delta_net = DeltaNetShape{.key_heads = 1, .value_heads = 1, .key_dim = 2, .value_dim = 2, .taps = 2};
  }
  spec.vocabulary = kVocabulary;
  spec.max_positions = 4096;
  return spec;
}

std::string Utf8(uint32_t code_point) {  // below 0x800
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
}

// Byte-level BPE without merges: GPT-2 spells the bytes that do not print as U+0100, U+0101, ...
std::string ByteTokenizerJson() {
  nlohmann::json vocabulary;
  uint32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    vocabulary[Utf8(prints ? byte : next++)] = byte;
  }
  nlohmann::json added = nlohmann::json::array();
  for (const auto& [id, content] : {std::pair(kEos, "<eos>"), std::pair(kOther, "<other>")}) {
    vocabulary[content] = id.value();
    added.push_back({{"id", id.value()},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const nlohmann::json byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const nlohmann::json model{{"type", "BPE"},
                             {"dropout", nullptr},
                             {"unk_token", nullptr},
                             {"continuing_subword_prefix", nullptr},
                             {"end_of_word_suffix", nullptr},
                             {"fuse_unk", false},
                             {"byte_fallback", false},
                             {"ignore_merges", false},
                             {"vocab", vocabulary},
                             {"merges", nlohmann::json::array()}};
  const nlohmann::json tokenizer{{"version", "1.0"},          {"truncation", nullptr}, {"padding", nullptr},
                                 {"added_tokens", added},     {"normalizer", nullptr}, {"pre_tokenizer", byte_level},
                                 {"post_processor", nullptr}, {"decoder", byte_level}, {"model", model}};
  return tokenizer.dump();
}

uint64_t NextState(uint64_t state, float number) { return (state ^ static_cast<uint64_t>(number + 2)) * 0x9e3779b97f4a7c15u; }

}  // namespace

void FakeLogits(std::span<const TokenId> history, std::span<float> logits) {
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (TokenId token : history) {
    hash = (hash ^ static_cast<uint64_t>(token.value() + 1)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 29;
  }
  for (size_t i = 0; i < logits.size(); ++i) {
    const uint64_t mixed = (hash ^ (i + 1) * 0xc4ceb9fe1a85ec53u) * 0xbf58476d1ce4e5b9u;
    logits[i] = static_cast<float>(mixed >> 40) * 0x1p-22f;  // [0, 4)
    if ((i >= 'a' && i <= 'h') || TokenId(static_cast<int32_t>(i)) == kEos) logits[i] += 20;
  }
}

const Tokenizer& ByteTokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    auto blob = CompileTokenizer(ByteTokenizerJson());
    if (!blob.ok()) ADD_FAILURE() << blob.status();
    MOED_CHECK(blob.ok());
    auto made = Tokenizer::FromBlob(*std::move(blob));
    MOED_CHECK(made.ok());
    return *std::move(made);
  }();
  return *tokenizer;
}

std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> tokens;
  for (char byte : text) tokens.push_back(TokenId(static_cast<unsigned char>(byte)));
  return tokens;
}

void FakeModel::Forward(std::span<SequenceChunk> chunks, ExpertProvider& provider, LogitsSink sink, StepWatcher* watcher) {
  for (SequenceChunk& chunk : chunks) chunk.status = fails ? fails(chunk) : absl::OkStatus();
  if (on_forward) on_forward(chunks);
  if (watcher != nullptr) watcher->OnLayerDone(chunks);
  std::set<SequenceId> sessions;
  int step_tokens = 0;
  std::vector<float> row(kVocabulary);
  for (size_t c = 0; c < chunks.size(); ++c) {
    SequenceChunk& chunk = chunks[c];
    const int count = static_cast<int>(chunk.tokens.size());
    const int start = chunk.kv->length;
    EXPECT_TRUE(sessions.insert(chunk.sequence).second) << "a sequence twice in one step";
    EXPECT_GE(count, 1);
    EXPECT_EQ(chunk.before, start == 0 ? TokenId(-1) : TokenId(static_cast<int32_t>(KeyOf(*chunk.kv, start - 1, LayerId(0)))));
    EXPECT_GE(static_cast<int>(chunk.kv->pages.size()), KvPool::PagesFor(start + count, kPageTokens));
    step_tokens += count;
    for (int i = 0; i < count; ++i) {
      const int position = start + i;
      const float written = chunk.status.ok() ? static_cast<float>(chunk.tokens[i].value()) : -1.0f;
      Write(*chunk.kv, position, written);
      if (!chunk.status.ok()) continue;
      provider.OnToken(chunk.sequence, chunk.tokens[i]);
      if (i < chunk.first_logits) continue;
      logits(History(*chunk.kv, position + 1), row);
      sink(static_cast<int>(c), i, row);
    }
    if (chunk.status.ok()) {
      chunk.kv->length += count;
    } else {
      kv_.CutBack(*chunk.kv, start, start + count);
    }
  }
  max_step_tokens = std::max(max_step_tokens, step_tokens);
  computed_tokens += step_tokens;
}

float& FakeModel::KeyOf(const KvSequence& kv, int position, LayerId layer) const {
  return reinterpret_cast<float*>(kv_.PageOf(kv, position / kPageTokens, layer))[position % kPageTokens];
}

uint64_t& FakeModel::StateOf(const KvSequence& kv) const {
  return *reinterpret_cast<uint64_t*>(kv_.State(kv, LayerId(spec_.layers - 1)));
}

void FakeModel::Write(const KvSequence& kv, int position, float number) const {
  for (int layer = 0; layer < spec_.layers; ++layer) {
    if (!spec_.IsRecurrent(LayerId(layer))) {
      KeyOf(kv, position, LayerId(layer)) = number;
    } else {
      StateOf(kv) = NextState(position == 0 ? 0 : StateOf(kv), number);
    }
  }
}

std::vector<TokenId> FakeModel::History(const KvSequence& kv, int length) const {
  std::vector<TokenId> history;
  uint64_t state = 0;
  for (int position = 0; position < length; ++position) {
    const float key = KeyOf(kv, position, LayerId(0));
    state = NextState(state, key);
    if (!spec_.windows.empty() && position >= length - spec_.windows[1]) {
      EXPECT_EQ(KeyOf(kv, position, LayerId(1)), key) << "position " << position << " of " << length;
    }
    history.push_back(TokenId(static_cast<int32_t>(key)));
  }
  if (!spec_.recurrent.empty()) {
    EXPECT_EQ(StateOf(kv), state) << "after " << length;
  }
  return history;
}

void NullProvider::OnSequenceStart(SequenceId session) {
  EXPECT_TRUE(live.insert(session).second) << "started twice";
  EXPECT_FALSE(ended.contains(session)) << "started after its end";
}

void NullProvider::OnSequenceEnd(SequenceId session) {
  EXPECT_EQ(live.erase(session), 1u) << "ended without a start";
  paused.erase(session);
  ended.insert(session);
}

void NullProvider::OnSequencePause(SequenceId session) {
  EXPECT_TRUE(live.contains(session)) << "paused without a start";
  paused.insert(session);
  ++pauses;
}

SequenceCounters NullProvider::sequence_counters(SequenceId session) const {
  EXPECT_TRUE(live.contains(session)) << "asked about a sequence that does not live";
  const auto known = lost.find(session);
  SequenceCounters counters = known == lost.end() ? SequenceCounters() : known->second;
  const auto found = computed.find(session);
  counters.hits = found == computed.end() ? 0 : found->second;
  return counters;
}

void Recorder::OnStarted(int prompt, int cached) {
  EXPECT_FALSE(started);
  EXPECT_FALSE(finish);
  started = true;
  prompt_tokens = prompt;
  cached_tokens = cached;
}

void Recorder::OnTokens(TokenDelta delta) {
  EXPECT_TRUE(started);
  EXPECT_FALSE(finish);
  EXPECT_FALSE(delta.text.empty() && delta.tokens.empty()) << "an empty delta";
  text += delta.text;
  pieces.push_back(delta.text);
  infos.insert(infos.end(), delta.tokens.begin(), delta.tokens.end());
  on_tokens();
}

void Recorder::OnFinish(const FinishInfo& info) {
  EXPECT_FALSE(finish) << "finished twice";
  finish = info;
  on_finish();
}

std::vector<TokenId> Recorder::tokens() const {
  std::vector<TokenId> tokens;
  for (const TokenInfo& info : infos) tokens.push_back(info.token);
  return tokens;
}

Harness::Harness(const HarnessOptions& options) {
  ModelSpec spec = FakeSpec(options.window, options.state);
  spec.eos = options.eos;
  kv = *KvPool::Create(spec, {.pages = options.pages, .slots = options.slots, .page_tokens = kPageTokens});
  model = std::make_unique<FakeModel>(*kv, spec);
  auto made = StepEngine::Create(options.engine, {*model, provider, *kv, ByteTokenizer(), clock, options.trace, options.fidelity,
                                                  nullptr, options.cold_seconds, options.failed});
  EXPECT_TRUE(made.ok()) << made.status();
  engine = *std::move(made);
}

std::shared_ptr<Recorder> Harness::Submit(EngineRequest request) {
  auto recorder = std::make_shared<Recorder>();
  const std::string name = request.name;
  auto id = engine->Submit(std::move(request), recorder);
  EXPECT_TRUE(id.ok()) << id.status();
  if (id.ok()) ids[name] = *id;
  return recorder;
}

absl::Status Harness::SubmitError(EngineRequest request) {
  auto recorder = std::make_shared<Recorder>();
  recorder->on_finish = [] { ADD_FAILURE() << "called for a request that was refused"; };
  return engine->Submit(std::move(request), recorder).status();
}

void Harness::RunAll() {
  for (int step = 0; engine->RunOneStep(); ++step) ASSERT_LT(step, 100000) << "no end in sight";
}

void Harness::ExpectClean() {
  EXPECT_TRUE(engine->Idle());
  EXPECT_EQ(engine->Stats().running, 0);
  EXPECT_EQ(engine->Stats().waiting, 0);
  EXPECT_EQ(static_cast<int>(provider.live.size()), engine->Stats().sessions);
  engine->Stop(absl::UnavailableError("the test is over"));
  EXPECT_EQ(kv->free_pages(), kv->pages());
  EXPECT_EQ(kv->free_slots(), kv->slots());
  EXPECT_TRUE(provider.live.empty());
}

EngineRequest GreedyRequest(std::string_view prompt, int new_tokens) {
  static std::atomic<int> made = 0;  // callers of tests have threads
  EngineRequest request;
  request.name = "request " + std::to_string(++made);
  request.prompt = Bytes(prompt);
  request.sampling.temperature = 0;
  request.stopping.max_new_tokens = new_tokens;
  request.stopping.ignore_eos = true;
  return request;
}

Expected Reference(const EngineRequest& request, std::vector<TokenId> history, int max_context, int max_new_tokens) {
  history.insert(history.end(), request.prompt.begin(), request.prompt.end());
  const int answer_begin = static_cast<int>(history.size());
  const int most = std::min(request.stopping.max_new_tokens.value_or(max_new_tokens), max_context - answer_begin);
  std::vector<TokenId> ending = request.stopping.stop_tokens;
  if (!request.stopping.ignore_eos) ending.push_back(kEos);
  Sampler sampler(kVocabulary);
  std::vector<float> logits(kVocabulary);
  Expected expected;
  while (expected.completion_tokens < most) {
    FakeLogits(history, logits);
    SamplingContext context{request.sampling.seed.value_or(0), history, answer_begin, {}};
    if (expected.completion_tokens < request.stopping.min_new_tokens) context.forbidden = ending;
    const TokenId token = *sampler.Sample(logits, request.sampling, context);
    ++expected.completion_tokens;
    if (std::find(ending.begin(), ending.end(), token) != ending.end()) {
      expected.reason = FinishReason::kStop;
      break;
    }
    history.push_back(token);
    expected.tokens.push_back(token);
  }
  if (expected.reason != FinishReason::kStop && expected.completion_tokens == max_context - answer_begin) {
    expected.reason = FinishReason::kContext;
  }
  expected.text = *ByteTokenizer().Decode(expected.tokens, request.skip_special_tokens);
  return expected;
}

void ExpectAnswer(const Recorder& recorder, const Expected& expected) {
  ASSERT_TRUE(recorder.finish);
  ASSERT_TRUE(recorder.finish->status.ok()) << recorder.finish->status;
  EXPECT_EQ(recorder.tokens(), expected.tokens);
  EXPECT_EQ(recorder.text, expected.text);
  EXPECT_EQ(recorder.finish->reason, expected.reason);
  EXPECT_EQ(recorder.finish->completion_tokens, expected.completion_tokens);
}

}  // namespace moed
