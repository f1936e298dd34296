// Rows of an embedding that stays in the store: the bits of one in memory, over formats, backends and models; what is read, what
// stays, and whom a failed read concerns.
#include "core/model/stored_embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "core/quant/format.h"
#include "tests/io/lying_file.h"
#include "tests/kernels/emulated_backend.h"
#include "tests/model/packed_model.h"

namespace moed {
namespace stored_embedding_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRows = 5003, kCols = 256, kPanelsKept = 256;

class StoredEmbeddingTest : public testing::TestWithParam<FormatId> {
 protected:
  StoredEmbeddingTest()
      : file_(std::make_shared<LyingFile>(
            "store", WriteSmallStore(folder_ / "store.moed", TableDescription("embed", GetParam(), kRows, kCols)))),
        store_(*StoreReader::Open(file_)),
        reads_(MakeThreadedReadBackend("threads", file_, 2)),
        backend_(*MakeComputeBackend("scalar", executor_)),
        table_(**store_->FindTensor("embed")),
        trunk_(*Buffer::Allocate(store_->description().trunk_bytes)) {
    EXPECT_TRUE(ReadTrunkInto(*store_, trunk_.span().first(store_->description().trunk_bytes)).ok());
    embedding_ = MakeOn(*backend_);
  }

  std::unique_ptr<StoredEmbedding> MakeOn(ComputeBackend& backend) {
    MatrixPanels panels(*store_, table_, *reads_);
    panels.Note(0, trunk_.span());
    return *StoredEmbedding::Create(std::move(panels), table_, backend);
  }

  // The rows of `tokens`; failed_ has those that could not be read.
  std::vector<float> Embed(const std::vector<TokenId>& tokens) {
    std::vector<float> y(tokens.size() * kCols);
    failed_.clear();
    EXPECT_TRUE(embedding_
                    ->Embed(tokens, y.data(),
                            [&](size_t i, const absl::Status& error) {
                              failed_.push_back(i);
                              error_ = error;
                            })
                    .ok());
    return y;
  }
  std::vector<float> InMemory(const std::vector<TokenId>& tokens) {
    std::vector<float> y(tokens.size() * kCols);
    backend_->Embed({table_.format, kRows, kCols, trunk_.data() + table_.offset}, tokens, y.data());
    return y;
  }
  static bool SameBytes(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }
  uint64_t InFile(int panel) const {
    return store_->layout().trunk_offset() + table_.offset + static_cast<uint64_t>(panel) * MatrixPanels::PanelBytes(table_);
  }

  MemoryFolder folder_;
  const std::shared_ptr<LyingFile> file_;
  const std::unique_ptr<StoreReader> store_;
  const std::unique_ptr<ReadBackend> reads_;
  InlineExecutor executor_;
  const std::unique_ptr<ComputeBackend> backend_;
  const TensorInfo& table_;
  const Buffer trunk_;
  std::unique_ptr<StoredEmbedding> embedding_;
  std::vector<size_t> failed_;
  absl::Status error_;
};

std::vector<TokenId> Repeated(int panels, int from = 0) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < panels; ++i) tokens.push_back(TokenId((from + i) * kPanelRows + i % kPanelRows));
  return tokens;
}

TEST_P(StoredEmbeddingTest, GivesTheRowsOfTheTable) {
  std::mt19937 random(11);
  for (const int count : {1, 2, 31, 32, 33, 500, 1, 700}) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i) {
      const int rows = i % 3 == 0 ? kRows : 64;  // some of many, most of few
      tokens.push_back(TokenId(static_cast<int32_t>(random() % static_cast<unsigned>(rows))));
    }
    tokens.front() = TokenId(kRows - 1);
    EXPECT_TRUE(SameBytes(Embed(tokens), InMemory(tokens))) << count;
    EXPECT_TRUE(failed_.empty());
  }
}

TEST_P(StoredEmbeddingTest, KeepsThePanelsThatWereWantedLast) {
  Embed(Repeated(kPanelsKept));
  const EmbeddingStats first = embedding_->stats();
  EXPECT_EQ(first.rows, static_cast<uint64_t>(kPanelsKept));
  EXPECT_EQ(first.reads, static_cast<uint64_t>(kPanelsKept));
  EXPECT_EQ(first.read_bytes, kPanelsKept * MatrixPanels::PanelBytes(table_));
  Embed(Repeated(kPanelsKept));  // all of them, the first ones last
  Embed(Repeated(32));
  EXPECT_EQ(embedding_->stats().reads, first.reads);
  Embed(Repeated(kPanelsKept - 32, kPanelsKept));
  EXPECT_EQ(embedding_->stats().reads, first.reads + kPanelsKept - 32);
  Embed(Repeated(32));
  EXPECT_EQ(embedding_->stats().reads, first.reads + kPanelsKept - 32);
  Embed(Repeated(1, 32));
  EXPECT_EQ(embedding_->stats().reads, first.reads + kPanelsKept - 31);
}

TEST_P(StoredEmbeddingTest, ReadsAPanelOnceThatSeveralTokensWant) {
  Embed({TokenId(80), TokenId(87), TokenId(80), TokenId(81)});
  EXPECT_EQ(embedding_->stats().reads, 1u);
}

TEST_P(StoredEmbeddingTest, DamageConcernsTheTokensOfItsPanelAlone) {
  file_->FlipBit(InFile(7) + 1, 2);
  std::vector<TokenId> tokens = Repeated(300);
  tokens[290] = TokenId(7 * kPanelRows);
  const std::vector<float> rows = Embed(tokens), expected = InMemory(tokens);
  EXPECT_THAT(failed_, ElementsAre(7, 290));
  EXPECT_EQ(error_.code(), absl::StatusCode::kDataLoss);
  EXPECT_GE(embedding_->stats().damaged, 1u);
  EXPECT_EQ(embedding_->stats().read_errors, 0u);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool same = std::memcmp(&rows[i * kCols], &expected[i * kCols], kCols * sizeof(float)) == 0;
    EXPECT_TRUE(same || i == 7 || i == 290) << i;
  }
  file_->Heal();
  EXPECT_TRUE(SameBytes(Embed(tokens), expected));
  EXPECT_TRUE(failed_.empty());
}

// More panels than are kept, on devices that run nothing before somebody waits for it: what is read must not take the place of
// what is still copied to them, nor of what they still look at.
TEST_P(StoredEmbeddingTest, WaitsForADevice) {
  for (const DeviceAttributes& attributes : {emulation::kUnifiedDevice, emulation::kDiscreteDevice}) {
    EmulatedBackend device{{.watch = false, .attributes = attributes}};
    BackendMemory& memory = device.backend->memory();
    const auto embedding = MakeOn(*device.backend);
    const std::vector<TokenId> tokens = Repeated(2 * kPanelsKept);
    const size_t bytes = tokens.size() * kCols * sizeof(float);
    const Buffer y = *memory.working().Allocate(bytes), expected = *memory.working().Allocate(bytes),
                 table = *memory.working().Allocate(table_.bytes), trunk = *memory.shared().Allocate(trunk_.size()),
                 seen = *memory.shared().Allocate(bytes), to_see = *memory.shared().Allocate(bytes);
    const auto failed = [](size_t, const absl::Status& error) { ADD_FAILURE() << error; };
    EXPECT_TRUE(embedding->Embed(tokens, reinterpret_cast<float*>(y.data()), failed).ok());
    memory.Copy(seen.data(), y.data(), bytes);
    std::ranges::copy(trunk_.span(), trunk.data());
    memory.Copy(table.data(), trunk.data() + table_.offset, table_.bytes);
    device.backend->Embed({table_.format, kRows, kCols, table.data()}, tokens, reinterpret_cast<float*>(expected.data()));
    memory.Copy(to_see.data(), expected.data(), bytes);
    EXPECT_TRUE(device.backend->Fence().ok());
    EXPECT_EQ(std::memcmp(seen.data(), to_see.data(), bytes), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, StoredEmbeddingTest, testing::ValuesIn(AllFormats()),
                         [](const auto& info) { return std::string(FormatOf(info.param).name); });

// Models whose head is their own, and those that have none.
std::vector<std::string> Names(bool tied) {
  std::vector<std::string> names;
  for (const std::string& name : CheckpointNames()) {
    const auto spec = SpecFromJson(PackedStore(name, FormatId::kQ8).description().model_spec);
    EXPECT_TRUE(spec.ok()) << spec.status();
    if (spec->tied_embeddings == tied) names.push_back(name);
  }
  return names;
}

std::vector<TokenId> SomeTokens(int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(TokenId(i * 29 % 251));
  return tokens;
}

TEST(ModelWithStoredEmbedding, HasTheSameBits) {
  ASSERT_GT(Names(false).size(), 10u);
  for (const std::string& name : Names(false)) {
    SCOPED_TRACE(name);
    const StoreReader& store = PackedStore(name, FormatId::kQ8);
    MemoryProvider provider(store);
    const auto run = [&](bool stored) {
      PackedModel model(store, {.backend = "auto", .stored_embedding = stored});
      TestSequence sequence;
      const Logits logits = model.Feed(provider, sequence, SomeTokens(40), 7);
      EXPECT_EQ(model.model().embedding_stats().rows, stored ? 40u : 0u);
      return logits;
    };
    EXPECT_TRUE(SameBits(run(true), run(false)));
  }
}

// A device has the trunk without the table, and of rows what was planned.
TEST(ModelWithStoredEmbedding, HoldsOnADeviceWhatWasPlanned) {
  const StoreReader& store = PackedStore("olmoe", FormatId::kQ4);
  const ModelSpec spec = *SpecFromJson(store.description().model_spec);
  MemoryProvider host_provider(store);
  PackedModel on_host(store);
  TestSequence sequence;
  const Logits expected = on_host.Feed(host_provider, sequence, SomeTokens(40), 9);
  for (const DeviceAttributes& attributes : {emulation::kUnifiedDevice, emulation::kDiscreteDevice}) {
    EmulatedBackend device{{.attributes = attributes}};
    const auto bytes = [&](MemoryKind kind) { return device.device->AllocatedBytes(kind); };
    const MemoryKind working = device.backend->memory().unified() ? MemoryKind::kPinned : MemoryKind::kDevice;
    uint64_t held[2];
    Logits logits[2];
    for (const bool stored : {false, true}) {
      const uint64_t before = bytes(working);
      PackedModel model(store, {.use_backend = device.backend.get(), .stored_embedding = stored});
      held[stored] = bytes(working) - before;
      MemoryProvider provider(store, device.backend->memory().shared());
      TestSequence of_device;
      logits[stored] = model.Feed(provider, of_device, SomeTokens(40), 9);
    }
    EXPECT_TRUE(SameBits(logits[false], expected) && SameBits(logits[true], expected));
    const Model::StoredEmbeddingBytes planned = Model::BytesOfStoredEmbedding(store.description(), spec);
    const uint64_t more = working == MemoryKind::kPinned ? planned.working + planned.host : planned.working;
    EXPECT_LE(held[true], held[false] - planned.left_out + more);
    EXPECT_GE(held[true], held[false] - planned.left_out + planned.working);
  }
}

// The bytes that are left out are not in memory, and what is held in their place was planned.
TEST(ModelWithStoredEmbedding, HoldsTheTrunkWithoutTheTable) {
  const StoreReader& store = PackedStore("olmoe", FormatId::kF32);
  PackedModel whole(store), stored(store, {.stored_embedding = true});
  const Model::StoredEmbeddingBytes bytes = Model::BytesOfStoredEmbedding(store.description(), whole.spec());
  const TensorInfo* const table = *store.FindTensor("embed");
  EXPECT_GT(bytes.left_out + 2 * kPageBytes, table->bytes);
  EXPECT_EQ(whole.model().trunk_bytes() - stored.model().trunk_bytes(), bytes.left_out);
  EXPECT_GE(bytes.working, table->bytes);  // all panels of so small a table are kept
}

class ModelOnALyingFile : public testing::Test {
 protected:
  const StoreReader& honest_ = PackedStore("olmoe", FormatId::kQ8);
  const std::shared_ptr<LyingFile> file_ =
      std::make_shared<LyingFile>(std::shared_ptr<RandomAccessFile>(*OpenBuffered(honest_.path())));
  const std::unique_ptr<ReadBackend> rows_ = MakeThreadedReadBackend("threads", file_, 2);
  MemoryProvider provider_{honest_};
  PackedModel model_{honest_, {.stored_embedding = true, .rows = rows_.get()}};
};

TEST_F(ModelOnALyingFile, AFailedRowHurtsOnlyItsChunk) {
  const TensorInfo& table = **honest_.FindTensor("embed");
  const int panel = 9;
  const uint64_t at = honest_.layout().trunk_offset() + table.offset + panel * MatrixPanels::PanelBytes(table);

  const std::vector<std::vector<TokenId>> prompts = {
      {TokenId(1), TokenId(2)}, {TokenId(3), TokenId(panel * kPanelRows + 5)}, {TokenId(200)}};
  std::vector<TestSequence> sequences(3);
  std::vector<SequenceChunk> chunks;
  for (size_t i = 0; i < 3; ++i) chunks.push_back({.sequence = SequenceId(i), .tokens = prompts[i], .kv = &sequences[i].kv});
  file_->FlipBit(at, 2);
  const std::vector<Logits> got = model_.Step(provider_, chunks);
  file_->Heal();
  EXPECT_EQ(chunks[1].status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(chunks[1].status.message()), HasSubstr("trunk tensor \"embed\" has changed"));
  EXPECT_EQ(sequences[1].kv.length, 0);
  PackedModel clean(honest_);
  for (size_t i = 0; i < 3; ++i) {
    TestSequence alone;
    const Logits expected = clean.Feed(provider_, alone, prompts[i], 2);
    if (i != 1) {
      EXPECT_TRUE(chunks[i].status.ok() && SameBits(got[i], expected)) << i;
      continue;
    }
    const Logits again = model_.Step(provider_, std::span(&chunks[1], 1))[0];
    EXPECT_TRUE(chunks[1].status.ok() && SameBits(again, expected));
  }
}

// All rows of a step fail: nothing is left to compute.
TEST_F(ModelOnALyingFile, AStepOfFailedRowsAloneEnds) {
  file_->FailWith({}, absl::UnavailableError("injected"));
  const std::vector<TokenId> tokens = SomeTokens(50);
  TestSequence sequence;
  SequenceChunk chunk = {.tokens = tokens, .kv = &sequence.kv};
  EXPECT_TRUE(model_.Step(provider_, std::span(&chunk, 1))[0].empty());
  EXPECT_TRUE(absl::IsDataLoss(chunk.status)) << chunk.status;  // whatever the device called it
  EXPECT_THAT(std::string(chunk.status.message()), AllOf(HasSubstr("of trunk tensor"), HasSubstr("injected")));
  EXPECT_GE(model_.model().embedding_stats().read_errors, 1u);
  EXPECT_EQ(model_.model().embedding_stats().damaged, 0u);
}

TEST(ModelWithStoredEmbedding, IsRefusedWhereTheTableIsTheHead) {
  for (const std::string& name : Names(true)) {
    const StoreReader& store = PackedStore(name, FormatId::kQ8);
    const ModelSpec spec = *SpecFromJson(store.description().model_spec);
    InlineExecutor executor;
    const auto backend = *MakeComputeBackend("scalar", executor);
    const auto kv = *KvPool::Create(spec, {.pages = 3, .slots = 1}, backend->memory());
    const auto rows = *OpenReadBackend("buffered", store.path(), {});
    const ModelOptions options = {.max_step_tokens = 8, .max_context = 64, .logits_rows = 1, .stored_embedding = true};
    const absl::Status refused =
        Model::Load({.store = store, .spec = spec, .backend = *backend, .kv = *kv, .rows = rows.get()}, options).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("it is the head as well")) << name;
    EXPECT_EQ(Model::BytesOfStoredEmbedding(store.description(), spec).left_out, 0u);
  }
}

}  // namespace stored_embedding_test
}  // namespace moed
