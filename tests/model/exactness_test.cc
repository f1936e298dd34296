// The bits of a sequence's logits depend on its tokens alone: not on chunks, other sequences, threads, instruction set, order of
// arrival or where its pages lie.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <random>

#include "tests/model/long_sequences.h"

namespace moed {
namespace {

constexpr int kPromptTokens = 85;  // more than a page holds

struct Case {
  std::string checkpoint;
  FormatId format;
};

std::vector<Case> Cases(std::span<const Format> formats) {
  std::vector<Case> cases;
  for (const std::string& name : CheckpointNames()) {
    for (const Format& format : formats) {
      if (Makes(QuantizerId::kRtn, format.id)) cases.push_back({name, format.id});
    }
  }
  return cases;
}

// f32 and q4 of every checkpoint, and one of the other formats in turn: tests of kernels have the products of every format.
std::vector<Case> CasesInTurn() {
  std::map<std::string, std::vector<Case>> others;
  std::vector<Case> cases;
  for (const Case& one : Cases(Formats())) {
    const bool always = one.format == FormatId::kF32 || one.format == FormatId::kQ4;
    (always ? cases : others[one.checkpoint]).push_back(one);
  }
  size_t turn = 0;
  for (const auto& [checkpoint, rest] : others) cases.push_back(rest[turn++ % rest.size()]);
  return cases;
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  return info.param.checkpoint + "_" + std::string(FormatOf(info.param.format).name);
}

class ExactnessTest : public testing::TestWithParam<Case> {
 protected:
  const StoreReader& store_ = PackedStore(GetParam().checkpoint, GetParam().format);
  const int vocabulary_ = SpecFromJson(store_.description().model_spec)->vocabulary;
  const std::vector<TokenId> tokens_ = RandomTokens(kPromptTokens, 1, vocabulary_);
  MemoryProvider provider_{store_};
  const Logits expected_ = Alone(ModelSetup{}, tokens_, tokens_.size());

  Logits Alone(const ModelSetup& setup, const std::vector<TokenId>& tokens, size_t chunk_tokens) {
    PackedModel model(store_, setup);
    TestSequence sequence;
    return model.Feed(provider_, sequence, tokens, chunk_tokens);
  }
};

TEST_P(ExactnessTest, Chunks) {
  for (const size_t chunk_tokens : {1, 3, 7, 16, 17}) {
    EXPECT_TRUE(SameBits(Alone({}, tokens_, chunk_tokens), expected_)) << "chunks of " << chunk_tokens;
  }
}

// Formats of keys and values take turns: every backend has each, and so has every number of threads and every chunk.
TEST_P(ExactnessTest, BackendsAndThreads) {
  std::vector<Logits> expected = {expected_};
  for (const KvFormat format : {KvFormat::kF16, KvFormat::kQ8}) {
    expected.push_back(Alone({.kv_format = format}, tokens_, tokens_.size()));
  }
  size_t turn = 0;
  for (const ComputeBackendRow& backend : ComputeBackends()) {
    if (!backend.supported()) continue;
    for (const int threads : {1, 2}) {
      for (const size_t chunk_tokens : {5, kPromptTokens}) {
        const size_t format = turn++ % expected.size();
        const ModelSetup setup = {
            .backend = std::string(backend.name), .threads = threads, .kv_format = static_cast<KvFormat>(format)};
        EXPECT_TRUE(SameBits(Alone(setup, tokens_, chunk_tokens), expected[format]))
            << backend.name << ", " << threads << " threads, chunks of " << chunk_tokens << ", " << kKvFormatNames[format];
      }
    }
  }
}

TEST_P(ExactnessTest, OrderOfArrival) {
  for (const uint64_t seed : {1, 2, 3}) {
    provider_.ShuffleWith(seed);
    EXPECT_TRUE(SameBits(Alone({}, tokens_, 11), expected_)) << "seed " << seed;
  }
}

TEST_P(ExactnessTest, LogitsRowsAtATime) {
  for (const int rows : {1, 2, 1000}) {
    EXPECT_TRUE(SameBits(Alone({.logits_rows = rows}, tokens_, tokens_.size()), expected_)) << rows << " rows";
  }
}

TEST_P(ExactnessTest, ScatteredPages) {
  PackedModel model(store_);
  TestSequence left, right, sequence;
  ASSERT_TRUE(model.kv().Reserve(left.kv, 4 * kKvPageTokens));
  for (int pages = 1; pages <= 4; ++pages) {  // pages of two sequences alternate
    ASSERT_TRUE(model.kv().Reserve(right.kv, pages * kKvPageTokens) && model.kv().Reserve(left.kv, (4 + pages) * kKvPageTokens));
  }
  model.kv().Release(right.kv);
  EXPECT_TRUE(SameBits(model.Feed(provider_, sequence, tokens_, 9), expected_));
  EXPECT_NE(sequence.kv.pages[1], sequence.kv.pages[0] + 1);
}

// Three sequences of different lengths go through the model in steps of random pieces, together and with changing partners, once
// with keys and values in each format.
TEST_P(ExactnessTest, BatchComposition) {
  provider_.ShuffleWith(5);
  std::vector<std::vector<TokenId>> prompts = {tokens_, RandomTokens(71, 2, vocabulary_), RandomTokens(96, 3, vocabulary_)};
  std::mt19937_64 random(7);
  for (int format = 0; format < kKvFormatCount; ++format) {
    const auto kv_format = static_cast<KvFormat>(format);
    std::vector<Logits> expected;
    for (const auto& prompt : prompts) expected.push_back(Alone({.kv_format = kv_format}, prompt, prompt.size()));
    PackedModel model(store_, {.threads = 2, .kv_format = kv_format});
    std::vector<TestSequence> sequences(prompts.size());
    std::vector<Logits> got(prompts.size());
    while (true) {
      std::vector<SequenceChunk> chunks;
      std::vector<size_t> owners;
      for (size_t i = 0; i < prompts.size(); ++i) {
        const size_t left = prompts[i].size() - sequences[i].kv.length;
        if (left == 0 || (random() % 3 == 0 && !chunks.empty())) continue;
        const size_t count = 1 + random() % std::min<size_t>(left, 12);
        owners.push_back(i);
        chunks.push_back({.sequence = SequenceId(i),
                          .phase = count == 1 ? Phase::kDecode : Phase::kPrefill,
                          .tokens = std::span(prompts[i]).subspan(sequences[i].kv.length, count),
                          .kv = &sequences[i].kv});
      }
      if (chunks.empty()) break;
      const std::vector<Logits> step = model.Step(provider_, chunks);
      for (size_t c = 0; c < chunks.size(); ++c) got[owners[c]].insert(got[owners[c]].end(), step[c].begin(), step[c].end());
    }
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_TRUE(SameBits(got[i], expected[i])) << "sequence " << i << ", " << kKvFormatNames[format];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stores, ExactnessTest, testing::ValuesIn(CasesInTurn()), CaseName);

// Whatever part of the activations is lent, and however many tokens the steps before and after had.
TEST_P(ExactnessTest, LentMemoryGivesTheSameBits) {
  for (const int own : {1, 7, 8}) {
    PackedModel model(store_, {.own_step_tokens = own});
    TestSequence sequence;
    const int before = provider_.loans;
    Logits got;
    for (const size_t piece : {1, 8, 9, 2}) {
      const auto tokens = std::span(tokens_).subspan(got.size(), piece);
      const Logits some = model.Feed(provider_, sequence, tokens, piece);
      got.insert(got.end(), some.begin(), some.end());
    }
    EXPECT_EQ(provider_.loans - before, own == 1 ? 3 : own == 7 ? 2 : 1);
    EXPECT_TRUE(SameBits(got, Logits(expected_.begin(), expected_.begin() + static_cast<std::ptrdiff_t>(got.size()))));
  }
}

TEST_P(ExactnessTest, AStepWithoutTheMemoryItNeedsFailsAlone) {
  PackedModel model(store_, {.own_step_tokens = 4});
  TestSequence sequence;
  SequenceChunk chunk = {.phase = Phase::kPrefill, .tokens = std::span(tokens_).first(5), .kv = &sequence.kv};
  provider_.refuse_loans = true;
  EXPECT_TRUE(model.Step(provider_, std::span(&chunk, 1))[0].empty());
  EXPECT_TRUE(absl::IsResourceExhausted(chunk.status)) << chunk.status;
  EXPECT_EQ(sequence.kv.length, 0);
  chunk.status = absl::OkStatus();
  chunk.tokens = chunk.tokens.first(4);
  EXPECT_TRUE(SameBits(model.Step(provider_, std::span(&chunk, 1))[0], Logits(expected_.begin(), expected_.begin() + 4)));
}

// Which of two formats the part of a layer's experts has.
using PartChoice = std::function<int(size_t moe_layer, ExpertPart part)>;

// The experts of the two stores, part by part as `choice` says; everything else is the first store's.
std::unique_ptr<StoreReader> MixedStore(const std::string& path, const std::array<const StoreReader*, 2>& stores,
                                        const PartChoice& choice) {
  StoreDescription description = stores[0]->description();
  description.precisions.resize(1);
  for (size_t i = 0; i < description.moe_layers.size(); ++i) {
    PartFormats formats{};
    PartShapes shapes;
    for (const ExpertSegment& segment : description.precisions[0].layers[i].segments) {
      const auto p = static_cast<size_t>(segment.part);
      formats[p] = stores[choice(i, segment.part)]->description().precisions[0].layers[i].Find(segment.part)->format;
      shapes[p] = {segment.rows, segment.cols};
    }
    description.precisions[0].layers[i] = LayOutExpert(formats, shapes);
  }
  auto writer = StoreWriter::Open(path, description, {}).value();
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < description.trunk.size(); ++i) {
    bytes.resize(description.trunk[i].bytes);
    EXPECT_TRUE(stores[0]->ReadTensor(stores[0]->description().trunk[i], bytes).ok() && writer->AppendTensor(i, bytes).ok());
  }
  const std::string files[] = {ReadText(stores[0]->path()), ReadText(stores[1]->path())};
  for (size_t i = 0; i < description.moe_layers.size(); ++i) {
    for (int expert = 0; expert < description.experts_per_layer; ++expert) {
      const CachedKey key{description.moe_layers[i], expert};
      for (const ExpertSegment& mixed : description.precisions[0].layers[i].segments) {
        const ExpertPart part = mixed.part;
        const int from = choice(i, part);
        const ExpertSegment& segment = *stores[from]->expert_layout(key).Find(part);
        const auto* begin = files[from].data() + stores[from]->RecordOffset(key) + segment.offset;
        EXPECT_TRUE(writer->AppendExpert(key, part, std::as_bytes(std::span(begin, segment.bytes))).ok());
      }
    }
  }
  EXPECT_TRUE(writer->Finish().ok());
  return StoreReader::Open(path).value();
}

class MixedFormatsTest : public testing::TestWithParam<std::string> {
 protected:
  Logits Of(const StoreReader& store, MemoryProvider& provider, const ModelSetup& setup, size_t chunk_tokens) {
    PackedModel model(store, setup);
    const std::vector<TokenId> tokens = RandomTokens(40, 1, model.spec().vocabulary);
    TestSequence sequence;
    return model.Feed(provider, sequence, tokens, chunk_tokens);
  }
  void ExpectBits(const StoreReader& mixed, const Logits& expected) {
    MemoryProvider provider(mixed);
    provider.ShuffleWith(3);
    for (const ComputeBackendRow& backend : ComputeBackends()) {
      if (!backend.supported()) continue;
      for (const size_t chunk_tokens : {1, 7, 40}) {
        const ModelSetup setup{.backend = std::string(backend.name), .threads = 2};
        EXPECT_TRUE(SameBits(Of(mixed, provider, setup, chunk_tokens), expected))
            << backend.name << ", chunks of " << chunk_tokens;
      }
    }
  }

  MemoryFolder folder_;
};

// The checkpoints' numbers are bf16, which f32 holds too: what is computed is the same whichever part has which.
TEST_P(MixedFormatsTest, PartsOfTheSameNumbersGiveTheSameBits) {
  const StoreReader& f32 = PackedStore(GetParam(), FormatId::kF32);
  const std::unique_ptr<StoreReader> mixed =
      MixedStore(folder_ / "mixed", {&f32, &PackedStore(GetParam(), FormatId::kBF16)},
                 [](size_t layer, ExpertPart part) { return (static_cast<int>(part) + static_cast<int>(layer)) % 3 == 2; });
  ASSERT_EQ(PrecisionName(mixed->description().precisions[0]), "f32+bf16");
  MemoryProvider provider(f32);
  ExpectBits(*mixed, Of(f32, provider, {}, 40));
}

// Layers that take turns between q8 and q4: as if a store of both handed out each layer at its precision.
TEST_P(MixedFormatsTest, LayersAreComputedInTheirOwnFormat) {
  const auto from = [](size_t layer) { return layer % 2 == 0 ? 1 : 0; };
  const StoreReader& q8 = PackedStore(GetParam(), FormatId::kQ8);
  const std::unique_ptr<StoreReader> mixed = MixedStore(folder_ / "mixed", {&q8, &PackedStore(GetParam(), FormatId::kQ4)},
                                                        [&](size_t layer, ExpertPart) { return from(layer); });
  const StoreReader& both = PackedStore(GetParam(), {FormatId::kQ8, FormatId::kQ4});
  MemoryProvider provider(both, [&](LayerId layer) { return static_cast<Precision>(from(both.layout().PositionOf(layer))); });
  const Logits expected = Of(both, provider, {}, 40);
  ExpectBits(*mixed, expected);
  MemoryProvider all_q8(q8);
  EXPECT_FALSE(SameBits(expected, Of(q8, all_q8, {}, 40)));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, MixedFormatsTest, testing::ValuesIn(CheckpointNames()),
                         [](const auto& info) { return info.param; });

class LargestStepTest : public ExactnessTest {};

// As many tokens and positions as the model was loaded for: scratch is large enough, and more whole contexts than there are page
// pointers for are attended in groups.
TEST_P(LargestStepTest, HasTheBitsOfSmallOnes) {
  constexpr int kSequences = 18;
  const int context = SpecFromJson(store_.description().model_spec)->max_positions;
  const std::vector<TokenId> tokens = RandomTokens(context, 4, vocabulary_);
  const Logits expected = Alone({.backend = "auto", .max_step_tokens = context}, tokens, tokens.size());
  EXPECT_TRUE(SameBits(Alone({.backend = "auto", .max_step_tokens = 8, .logits_rows = 3}, tokens, 8), expected));

  constexpr int kPiece = 8;
  ASSERT_EQ(context % kPiece, 0);
  PackedModel model(store_, {.backend = "auto",
                             .max_step_tokens = kSequences * kPiece,
                             .kv_pages = kSequences * KvPool::PagesFor(context),
                             .kv_slots = kSequences});
  std::vector<TestSequence> sequences(kSequences);
  for (int position = 0; position < context; position += kPiece) {
    std::vector<SequenceChunk> chunks;
    for (TestSequence& sequence : sequences) {
      chunks.push_back({.tokens = std::span(tokens).subspan(position, kPiece), .kv = &sequence.kv, .first_logits = kPiece - 1});
    }
    for (const Logits& logits : model.Step(provider_, chunks)) {
      EXPECT_TRUE(SameBits(logits, {expected[position + kPiece - 1]}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stores, LargestStepTest, testing::ValuesIn(Cases(std::span(&FormatOf(FormatId::kQ8), 1))), CaseName);

}  // namespace
}  // namespace moed
