// Models whose prompt is computed whole, encoder-decoders and prefix-LMs, against what transformers computed
// (tools/parity/make_switch_golden.py, make_gptsan_golden.py); and the bits of a sequence's logits, which depend on its prompt
// and the tokens that follow alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "core/model/position_bias.h"
#include "nlohmann/json.hpp"
#include "tests/file_text.h"
#include "tests/kernels/emulated_backend.h"
#include "tests/model/long_sequences.h"

namespace moed {
namespace {

constexpr double kTolerance = 1e-5;  // of the standard deviation of the logits
constexpr int kMaxContext = 160;

struct Golden {
  std::vector<TokenId> source;
  TokenId start;  // of an encoder-decoder
  std::vector<TokenId> greedy;
  Logits logits;  // that choose the first greedy tokens
  double deviation = 0;
  std::vector<std::vector<std::vector<int32_t>>> experts;  // [MoE layer of the prompt][its token][slot]
  int dropped = 0;
};

std::vector<TokenId> Tokens(const nlohmann::json& numbers) {
  const auto values = numbers.get<std::vector<int32_t>>();
  return std::vector<TokenId>(values.begin(), values.end());
}

Golden ReadGolden(const std::string& checkpoint) {
  const auto json = nlohmann::json::parse(ReadFileText(DataFolder() + "/" + checkpoint + "/golden.json.xz"));
  Golden golden{Tokens(json.at("prompt")), TokenId(json.value("start", 0)), Tokens(json.at("greedy"))};
  json.at("logits").get_to(golden.logits);
  json.at("logits_std").get_to(golden.deviation);
  json.at("experts").get_to(golden.experts);
  json.at("dropped").get_to(golden.dropped);
  return golden;
}

// Logits of the prompt, which is one chunk; a source has none.
Logits FeedWhole(PackedModel& model, MemoryProvider& provider, TestSequence& sequence, std::span<const TokenId> prompt) {
  Logits logits = model.Feed(provider, sequence, prompt, prompt.size());
  EXPECT_EQ(logits.size(), model.spec().encoder ? 0 : prompt.size());
  EXPECT_EQ(sequence.kv.source, model.spec().encoder ? static_cast<int>(prompt.size()) : 0);
  return logits;
}

// The prompt as one chunk, then what follows.
Logits Decode(PackedModel& model, MemoryProvider& provider, TestSequence& sequence, std::span<const TokenId> source,
              std::span<const TokenId> tokens, size_t chunk_tokens) {
  Logits logits = FeedWhole(model, provider, sequence, source);
  const Logits more = model.Feed(provider, sequence, tokens, chunk_tokens);
  logits.insert(logits.end(), more.begin(), more.end());
  return logits;
}

// Random, with a separator in the middle where the model has one.
std::vector<TokenId> RandomPrompt(int count, uint64_t seed, const ModelSpec& spec) {
  std::vector<TokenId> tokens = RandomTokens(count, seed, spec.vocabulary);
  if (spec.prefix) tokens[static_cast<size_t>(count) / 2] = TokenId(spec.prefix->separator);
  return tokens;
}

class WholePromptParity : public testing::TestWithParam<std::string> {
 protected:
  const StoreReader& store_ = PackedStore(GetParam(), FormatId::kBF16);
  const Golden golden_ = ReadGolden(GetParam());
  PackedModel model_{store_, {.max_context = kMaxContext}};
  MemoryProvider provider_{store_};
};

TEST_P(WholePromptParity, LogitsAndGreedyTokensAreThoseOfTransformers) {
  TestSequence sequence;
  std::vector<TokenId> token = {golden_.start}, greedy;
  Logits step = FeedWhole(model_, provider_, sequence, golden_.source);
  double largest = 0;
  while (greedy.size() < golden_.greedy.size()) {
    if (greedy.size() > 0 || step.empty()) step = model_.Feed(provider_, sequence, token, 1);
    const std::vector<float>& logits = step.back();
    if (const size_t row = greedy.size(); row < golden_.logits.size()) {
      const std::vector<float>& expected = golden_.logits[row];
      ASSERT_EQ(logits.size(), expected.size());
      for (size_t i = 0; i < logits.size(); ++i) largest = std::max(largest, std::abs(double{logits[i]} - double{expected[i]}));
    }
    token[0] = TokenId(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    greedy.push_back(token[0]);
  }
  RecordProperty("difference_in_deviations", std::to_string(largest / golden_.deviation));
  EXPECT_LE(largest / golden_.deviation, kTolerance);
  EXPECT_EQ(greedy, golden_.greedy);
}

TEST_P(WholePromptParity, ExpertsAndWhatTheyHaveNoRoomForAreThoseOfTransformers) {
  std::vector<std::vector<std::vector<int32_t>>> experts;
  provider_.RecordExperts(experts);
  TestSequence sequence;
  SequenceChunk chunk = {.phase = Phase::kPrefill, .tokens = golden_.source, .kv = &sequence.kv};
  model_.Step(provider_, std::span(&chunk, 1));
  EXPECT_EQ(experts, golden_.experts);
  EXPECT_EQ(chunk.dropped, golden_.dropped);
  EXPECT_EQ(golden_.dropped > 0, GetParam() == "switch_transformers" || GetParam() == "gptsan_japanese");
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, WholePromptParity, testing::ValuesIn(WholePromptNames()),
                         [](const auto& info) { return info.param; });

struct Case {
  std::string checkpoint;
  FormatId format;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& name : WholePromptNames()) {
    for (const Format& format : Formats()) {
      const bool wanted = name != "gptsan_japanese_plain" || format.id == FormatId::kBF16;
      if (wanted && Makes(QuantizerId::kRtn, format.id)) cases.push_back({name, format.id});
    }
  }
  return cases;
}

class WholePromptExactness : public testing::TestWithParam<Case> {
 protected:
  static constexpr int kSourceTokens = 75, kTokens = 70;  // each more than a page holds

  Logits Alone(ModelSetup setup, size_t chunk_tokens) {
    setup.max_context = kMaxContext;
    PackedModel model(store_, setup);
    TestSequence sequence;
    return Decode(model, provider_, sequence, source_, tokens_, chunk_tokens);
  }

  const StoreReader& store_ = PackedStore(GetParam().checkpoint, GetParam().format);
  const ModelSpec spec_ = *SpecFromJson(store_.description().model_spec);
  const std::vector<TokenId> source_ = RandomPrompt(kSourceTokens, 1, spec_);
  const std::vector<TokenId> tokens_ = RandomTokens(kTokens, 2, spec_.vocabulary);
  MemoryProvider provider_{store_};
  const Logits expected_ = Alone({}, kTokens);
};

TEST_P(WholePromptExactness, ChunksOfTheDecoderPagesAndMemory) {
  for (const size_t chunk_tokens : {1, 3, 17}) EXPECT_TRUE(SameBits(Alone({}, chunk_tokens), expected_)) << chunk_tokens;
  for (const int page_tokens : {16, 32}) EXPECT_TRUE(SameBits(Alone({.page_tokens = page_tokens}, 9), expected_)) << page_tokens;
  for (const int own : {1, 70}) EXPECT_TRUE(SameBits(Alone({.own_step_tokens = own}, 20), expected_)) << own;
  provider_.ShuffleWith(3);
  EXPECT_TRUE(SameBits(Alone({.logits_rows = 1}, 11), expected_));
}

TEST_P(WholePromptExactness, BackendsAndThreads) {
  for (const KvFormat kv_format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kQ8}) {
    const Logits expected = Alone({.kv_format = kv_format}, kTokens);
    for (const ComputeBackendRow& backend : ComputeBackends()) {
      if (!backend.supported()) continue;
      for (const int threads : {1, 2}) {
        const ModelSetup setup = {.backend = std::string(backend.name), .threads = threads, .kv_format = kv_format};
        EXPECT_TRUE(SameBits(Alone(setup, 13), expected)) << backend.name << ", " << threads << " threads";
      }
    }
  }
}

// Sources and the decoder's tokens of several sequences in the same steps: what an expert has room for is a source's own.
TEST_P(WholePromptExactness, BatchComposition) {
  constexpr int kSequences = 3;
  std::vector<std::vector<TokenId>> sources = {source_}, tokens = {tokens_};
  std::vector<Logits> expected = {expected_}, got(kSequences);
  PackedModel model(store_, {.threads = 2, .max_step_tokens = 150, .max_context = kMaxContext});
  for (int i = 1; i < kSequences; ++i) {
    sources.push_back(RandomPrompt(30 + i, 10 + i, spec_));
    tokens.push_back(RandomTokens(20, 20 + i, spec_.vocabulary));
    TestSequence alone;
    expected.push_back(Decode(model, provider_, alone, sources[i], tokens[i], 20));
    model.kv().Release(alone.kv);
  }
  std::vector<TestSequence> sequences(kSequences);
  std::mt19937_64 random(7);
  std::vector<size_t> fed(kSequences);
  while (fed.back() < tokens.back().size() || fed[0] < tokens[0].size()) {
    std::vector<SequenceChunk> chunks;
    std::vector<size_t> owners;
    for (size_t i = 0; i < kSequences; ++i) {
      const bool whole = sequences[i].kv.length == 0;
      const size_t left = tokens[i].size() - fed[i];
      if (left == 0 || random() % 3 == 0) continue;
      const auto some = std::span(tokens[i]).subspan(fed[i], 1 + random() % std::min<size_t>(left, 9));
      owners.push_back(i);
      if (!whole) fed[i] += some.size();
      chunks.push_back(
          {.sequence = SequenceId(i), .tokens = whole ? std::span<const TokenId>(sources[i]) : some, .kv = &sequences[i].kv});
    }
    if (chunks.empty()) continue;
    const std::vector<Logits> step = model.Step(provider_, chunks);
    for (size_t c = 0; c < chunks.size(); ++c) got[owners[c]].insert(got[owners[c]].end(), step[c].begin(), step[c].end());
  }
  for (size_t i = 0; i < kSequences; ++i) EXPECT_TRUE(SameBits(got[i], expected[i])) << "sequence " << i;
}

INSTANTIATE_TEST_SUITE_P(Stores, WholePromptExactness, testing::ValuesIn(Cases()), [](const auto& info) {
  return info.param.checkpoint + "_" + std::string(FormatOf(info.param.format).name);
});

class WholePromptTest : public testing::TestWithParam<std::string> {};

TEST_P(WholePromptTest, KernelsOfADeviceHaveTheBitsOfScalar) {
  EmulatedBackend unified{{.watch = true, .attributes = emulation::kUnifiedDevice}};
  EmulatedBackend discrete{{.watch = true, .attributes = emulation::kDiscreteDevice}};
  const StoreReader& store = PackedStore(GetParam(), FormatId::kQ4);
  Logits expected;
  for (ComputeBackend* backend : {static_cast<ComputeBackend*>(nullptr), unified.backend.get(), discrete.backend.get()}) {
    PackedModel model(store, {.page_tokens = 16, .max_context = 64, .use_backend = backend});
    MemoryProvider provider(store, backend != nullptr ? backend->memory().shared() : Allocator::Host());
    const std::vector<TokenId> tokens = RandomPrompt(25, 1, model.spec());
    TestSequence sequence;
    const Logits logits = Decode(model, provider, sequence, std::span(tokens).first(21), std::span(tokens).last(4), 2);
    if (backend == nullptr) expected = logits;
    EXPECT_TRUE(SameBits(logits, expected));
  }
}

// One that cannot be read ends the source whose tokens chose it, and no other; afterwards it may begin anew.
TEST_P(WholePromptTest, AnExpertThatIsMissingEndsItsSourceAlone) {
  const StoreReader& store = PackedStore(GetParam(), FormatId::kQ8);
  PackedModel model(store, {.max_context = kMaxContext});
  MemoryProvider provider(store);
  const std::vector<TokenId> source = RandomPrompt(40, 1, model.spec());
  const std::vector<TokenId> start = {TokenId(0)};
  const LayerId layer = model.spec().MoeLayers().front();
  std::vector<int32_t> chosen;
  provider.on_begin = [&](const LayerRouting& routing) {
    if (routing.layer != layer) return;
    for (const TokenRouting& token : routing.tokens) {
      if (!token.choices.empty()) chosen.push_back(token.choices[0].expert);
    }
  };
  TestSequence first, other;
  const Logits expected = Decode(model, provider, first, source, start, 1);
  const int32_t missing = chosen.back();
  const std::vector<TokenId> single = [&] {
    for (const TokenId token : source) {  // a source that does without it
      chosen.clear();
      TestSequence probe;
      model.Feed(provider, probe, std::span(&token, 1), 1);
      model.kv().Release(probe.kv);
      if (chosen != std::vector{missing}) return std::vector{token};
    }
    return std::vector<TokenId>();
  }();
  ASSERT_FALSE(single.empty());
  model.kv().Release(first.kv);
  provider.FailWith(ExpertFault{.key = {layer, missing}, .part = std::nullopt});
  SequenceChunk chunks[] = {{.sequence = SequenceId(1), .tokens = source, .kv = &first.kv},
                            {.sequence = SequenceId(2), .tokens = single, .kv = &other.kv}};
  model.Step(provider, chunks);
  EXPECT_TRUE(absl::IsDataLoss(chunks[0].status)) << chunks[0].status;
  EXPECT_EQ(chunks[1].status, absl::OkStatus());
  EXPECT_EQ(first.kv.source, 0);
  EXPECT_EQ(other.kv.source, model.spec().encoder ? 1 : 0);
  provider.FailWith(std::nullopt);
  EXPECT_TRUE(SameBits(Decode(model, provider, first, source, start, 1), expected));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, WholePromptTest, testing::ValuesIn(WholePromptNames()),
                         [](const auto& info) { return info.param; });

// As transformers' _relative_position_bucket(torch.arange(...)) has them.
TEST(PositionBucket, AreThoseOfTransformers) {
  const EncoderShape usual = {.position_buckets = 32, .most_distance = 128}, few = {.position_buckets = 10, .most_distance = 19};
  const auto buckets = [](const EncoderShape& shape, bool both, std::vector<int> positions) {
    for (int& position : positions) position = PositionBucket(position, both, shape);
    return positions;
  };
  EXPECT_EQ(buckets(usual, true, {-500, -128, -127, -120, -91, -90, -64, -63, -32, -31, -16, -15, -8, -7,  -1,  0,   1,
                                  7,    8,    9,    11,   12,  16,  22,  23,  32,  45,  46,  64,  91, 127, 128, 1000}),
            (std::vector<int>{15, 15, 15, 15, 15, 14, 14, 13, 12, 11, 10, 9,  8,  7,  1,  0, 17,
                              23, 24, 24, 24, 25, 26, 26, 27, 28, 28, 29, 30, 31, 31, 31, 31}));
  EXPECT_EQ(buckets(usual, false, {-500, -128, -127, -120, -91, -90, -64, -63, -32, -31, -16, -15, -8, -7,  -1,  0,   1,
                                   7,    8,    9,    11,   12,  16,  22,  23,  32,  45,  46,  64,  91, 127, 128, 1000}),
            (std::vector<int>{31, 31, 31, 31, 29, 29, 26, 26, 21, 21, 16, 15, 8, 7, 1, 0, 0,
                              0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0, 0, 0, 0}));
  EXPECT_EQ(buckets(few, true, {-30, -19, -18, -12, -9, -8, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 9, 19, 40}),
            (std::vector<int>{4, 4, 4, 4, 4, 3, 3, 2, 2, 2, 1, 0, 6, 7, 7, 7, 8, 9, 9, 9}));
  EXPECT_EQ(buckets(few, false, {-30, -19, -18, -12, -9, -8, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 9, 19, 40}),
            (std::vector<int>{9, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace moed
