#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "core/store/checksum.h"
#include "core/store/header.h"
#include "tests/base/damaged_bytes.h"
#include "tests/store/small_store.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<StoreReader>> OpenBytes(std::string bytes) {
  return StoreReader::Open(std::shared_ptr<const RandomAccessFile>(MakeMemoryFile("memory.store", std::move(bytes))));
}

absl::Status Verify(const StoreReader& reader) {
  return reader.VerifyAll([](uint64_t, uint64_t) { return true; });
}

absl::Status OpenAndVerify(std::string bytes) {
  auto reader = OpenBytes(std::move(bytes));
  return reader.ok() ? Verify(**reader) : reader.status();
}

class StoreReaderTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    TemporaryFolder folder;
    bytes_ = new std::string(WriteSmallStore(folder / "small.store"));
  }
  static void TearDownTestSuite() { delete bytes_; }

  static FileLayout Layout() { return *FileLayout::Plan(SmallDescription(), SmallDescription().tokenizer.size()); }
  // The stored header after `change`, with a checksum that fits again.
  static std::string WithHeader(const std::function<void(std::string&)>& change) {
    std::string bytes = *bytes_;
    change(bytes);
    ChecksumStream stream;
    stream.Update(Bytes(bytes).first(120));
    stream.Update(Bytes(bytes).subspan(kHeaderBytes, Layout().description_bytes()));
    const uint64_t checksum = stream.Value();
    std::memcpy(bytes.data() + 120, &checksum, 8);
    return bytes;
  }

  static inline std::string* bytes_ = nullptr;
};

TEST_F(StoreReaderTest, ReturnsWhatWasWritten) {
  const StoreDescription expected = SmallDescription();
  auto reader = OpenBytes(*bytes_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const StoreDescription& found = (*reader)->description();
  EXPECT_EQ(found.model_spec, expected.model_spec);
  EXPECT_EQ(found.moe_layers, expected.moe_layers);
  EXPECT_EQ(found.experts_per_layer, expected.experts_per_layer);
  EXPECT_EQ(found.tokenizer, expected.tokenizer);
  EXPECT_EQ(found.trunk_bytes, expected.trunk_bytes);
  ASSERT_EQ(found.trunk.size(), expected.trunk.size());
  for (size_t i = 0; i < expected.trunk.size(); ++i) {
    EXPECT_EQ(found.trunk[i].name, expected.trunk[i].name);
    EXPECT_EQ(found.trunk[i].format, expected.trunk[i].format);
    EXPECT_EQ(found.trunk[i].vector, expected.trunk[i].vector);
    EXPECT_EQ(found.trunk[i].rows, expected.trunk[i].rows);
    EXPECT_EQ(found.trunk[i].cols, expected.trunk[i].cols);
    EXPECT_EQ(found.trunk[i].offset, expected.trunk[i].offset);
    EXPECT_EQ(found.trunk[i].bytes, expected.trunk[i].bytes);
  }
  ASSERT_EQ(found.precisions.size(), expected.precisions.size());
  for (size_t p = 0; p < expected.precisions.size(); ++p) {
    EXPECT_EQ(found.precisions[p].format, expected.precisions[p].format);
    EXPECT_EQ(found.precisions[p].record_bytes, expected.precisions[p].record_bytes);
    EXPECT_EQ((*reader)->expert_bytes(static_cast<Precision>(p)), expected.precisions[p].record_bytes);
  }
  EXPECT_EQ((*reader)->all_expert_bytes(), 6 * expected.precisions[0].record_bytes);
  EXPECT_EQ((*reader)->file_bytes(), bytes_->size());
  EXPECT_EQ(bytes_->size() % kStoreAlignment, 0u);
  EXPECT_TRUE(Verify(**reader).ok());
  EXPECT_EQ((*reader)->TakeTokenizer(), expected.tokenizer);
  EXPECT_TRUE((*reader)->description().tokenizer.empty());
}

TEST_F(StoreReaderTest, ReturnsTrunkAndExpertBytes) {
  const StoreDescription description = SmallDescription();
  auto reader = OpenBytes(*bytes_);
  ASSERT_TRUE(reader.ok());
  std::string trunk(description.trunk_bytes, '\xff');
  ASSERT_TRUE((*reader)->ReadTrunk(std::as_writable_bytes(std::span(trunk))).ok());
  for (size_t i = 0; i < description.trunk.size(); ++i) {
    auto tensor = (*reader)->FindTensor(description.trunk[i].name);
    ASSERT_TRUE(tensor.ok());
    EXPECT_EQ((*tensor)->offset % kTensorAlignment, 0u);
    EXPECT_EQ(trunk.substr((*tensor)->offset, (*tensor)->bytes), TensorContents(description, i));
  }
  for (const CachedKey& key : AllKeys(description)) {
    ASSERT_TRUE((*reader)->CheckKey(key).ok());
    const uint64_t record = (*reader)->RecordOffset(key);
    EXPECT_EQ(record % kStoreAlignment, 0u);
    for (const ExpertSegment& segment : description.precisions[key.precision].segments) {
      EXPECT_EQ(segment.offset % kStoreAlignment, 0u);
      const std::string contents = bytes_->substr(record + segment.offset, segment.bytes);
      EXPECT_EQ(contents, SegmentContents(description, key, segment.part));
      EXPECT_EQ((*reader)->SegmentChecksum(key, segment.part), Checksum(contents));
      EXPECT_TRUE((*reader)->VerifySegment(key, segment.part, Bytes(contents)).ok());
    }
  }
}

TEST_F(StoreReaderTest, RefusesKeysAndNamesOutsideTheStore) {
  auto reader = OpenBytes(*bytes_);
  ASSERT_TRUE(reader.ok());
  const CachedKey outside[] = {{LayerId(1), 0, 0}, {LayerId(3), 0, 0},  {LayerId(-1), 0, 0},
                               {LayerId(0), 3, 0}, {LayerId(0), -1, 0}, {LayerId(0), 0, 2}};
  for (const CachedKey& key : outside) {
    const absl::Status status = (*reader)->CheckKey(key);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("MoE layers are 0, 2 with 3 experts each at 2 precisions"));
  }
  const absl::Status missing = (*reader)->FindTensor("head").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("\"head\""));
}

// Header, description, every piece and all padding: no byte of a store is unguarded.
TEST_F(StoreReaderTest, DetectsEveryFlippedByte) {
  const uint64_t dense = Layout().tokenizer_offset() + kStoreAlignment;  // every byte up to the experts, every 7th from there
  const auto refused = [](std::string damaged, size_t at) {
    EXPECT_FALSE(OpenAndVerify(std::move(damaged)).ok()) << "byte " << at;
  };
  ForEachFlip(*bytes_, {.end = dense}, 1, refused);
  ForEachFlip(*bytes_, {.begin = dense, .step = 7}, 1, refused);
}

TEST_F(StoreReaderTest, RefusesToOpenWithAnyFlippedBitInTheHeader) {
  ForEachFlip(*bytes_, {.end = Layout().trunk_offset()}, 8,
              [](std::string damaged, size_t at) { EXPECT_FALSE(OpenBytes(std::move(damaged)).ok()) << "byte " << at; });
}

TEST_F(StoreReaderTest, RefusesEveryTruncation) {
  std::vector<size_t> sizes = {0, 1, 7, 8, 127, 128, 129};
  for (size_t at = 0; at < bytes_->size(); at += kStoreAlignment) sizes.insert(sizes.end(), {at, at + 1, at + 4095});
  for (const size_t size : sizes) {
    const absl::Status status = OpenBytes(bytes_->substr(0, size)).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << size << ": " << status;
    ASSERT_THAT(std::string(status.message()), AllOf(HasSubstr("memory.store is truncated"), HasSubstr(std::to_string(size))));
  }
  EXPECT_THAT(std::string(OpenBytes(*bytes_ + std::string(4096, '\0')).status().message()), HasSubstr("too long"));
}

TEST_F(StoreReaderTest, SaysWhatIsDamaged) {
  const FileLayout layout = Layout();
  const struct {
    size_t piece;
    std::string name;
  } cases[] = {
      {layout.TensorPiece(0), "trunk tensor \"embed\""},
      {layout.TensorPiece(2), "trunk tensor \"router\""},
      {layout.TokenizerPiece(), "tokenizer"},
      {layout.ExpertPiece({LayerId(2), 1, 0}, ExpertPart::kUp), "expert 1 of layer 2 at precision 0 (q8), up"},
      {layout.ExpertPiece({LayerId(0), 2, 1}, ExpertPart::kDown), "expert 2 of layer 0 at precision 1 (q4), down"},
  };
  for (const auto& [piece, name] : cases) {
    const Piece place = layout.PieceAt(piece);
    std::string damaged = *bytes_;
    damaged[place.offset + place.bytes - 1] ^= 4;
    const absl::Status status = OpenAndVerify(damaged);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(name), HasSubstr("expected"))) << name;
  }
}

TEST_F(StoreReaderTest, NamesTheDamagedSegmentAndTrunkTensor) {
  const CachedKey key{LayerId(2), 0, 1};
  auto reader = OpenBytes(*bytes_);
  ASSERT_TRUE(reader.ok());
  std::string segment = SegmentContents(SmallDescription(), key, ExpertPart::kGate);
  EXPECT_THAT(std::string((*reader)->VerifySegment(key, ExpertPart::kGate, Bytes(segment).subspan(1)).message()),
              HasSubstr("bytes"));
  segment[5] ^= 1;
  const absl::Status status = (*reader)->VerifySegment(key, ExpertPart::kGate, Bytes(segment));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expert 0 of layer 2 at precision 1 (q4), gate"));

  std::string damaged = *bytes_;
  damaged[Layout().PieceAt(1).offset] ^= 1;
  auto bad = OpenBytes(damaged);
  ASSERT_TRUE(bad.ok());
  std::string trunk(SmallDescription().trunk_bytes, '\0');
  EXPECT_THAT(std::string((*bad)->ReadTrunk(std::as_writable_bytes(std::span(trunk))).message()),
              HasSubstr("trunk tensor \"norm\""));
}

TEST_F(StoreReaderTest, VerifyCountsFurtherDamageAndCanBeEnded) {
  std::string damaged = *bytes_;
  for (size_t i = 0; i < 3; ++i) damaged[Layout().PieceAt(i).offset] ^= 1;
  EXPECT_THAT(std::string(OpenAndVerify(damaged).message()), AllOf(HasSubstr("\"embed\""), HasSubstr("2 more damaged places")));

  auto reader = OpenBytes(*bytes_);
  ASSERT_TRUE(reader.ok());
  uint64_t previous = 0;
  int calls = 0;
  ASSERT_TRUE((*reader)
                  ->VerifyAll([&](uint64_t done, uint64_t total) {
                    EXPECT_GE(done, previous);
                    EXPECT_EQ(total, bytes_->size());
                    previous = done;
                    ++calls;
                    return true;
                  })
                  .ok());
  EXPECT_EQ(previous, bytes_->size());
  const absl::Status ended = (*reader)->VerifyAll([&](uint64_t, uint64_t) { return --calls > 3; });
  EXPECT_EQ(ended.code(), absl::StatusCode::kCancelled);
}

TEST_F(StoreReaderTest, SaysWhatIsNotAFinishedStoreOfThisVersion) {
  std::string unfinished = *bytes_;
  std::fill_n(unfinished.begin(), Layout().trunk_offset(), '\0');
  absl::Status status = OpenBytes(unfinished).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("unfinished pack"));

  status = OpenBytes(WithHeader([](std::string& bytes) { bytes[8] = 9; })).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("version 9"), HasSubstr("expected version 1")));

  status = OpenBytes("{\"json\": true}" + std::string(5000, ' ')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("MOEDSTOR"), HasSubstr("{\"json\"")));
  EXPECT_FALSE(StoreReader::Open("/no/such/store").ok());
}

// Headers whose checksum fits but whose contents lie: each field, with values that overflow, overlap or ask for much memory.
TEST_F(StoreReaderTest, RefusesHostileHeaders) {
  const std::vector<uint64_t> values = {
      0, 1, 4096, bytes_->size(), uint64_t{1} << 31, uint64_t{1} << 62, UINT64_MAX, UINT64_MAX - 4095};
  const uint64_t end = kHeaderBytes + Layout().description_bytes() - Layout().expert_piece_count() * 8;
  for (uint64_t at = 12; at + 4 <= end; ++at) {
    if (at >= 120 && at < kHeaderBytes) continue;
    for (const uint64_t value : values) {
      for (const size_t width : {size_t{1}, size_t{4}, size_t{8}}) {
        // Tensor checksums, the spec and names may hold anything: then the store opens, and verification has the last word.
        const std::string hostile = WithHeader([&](std::string& bytes) { std::memcpy(bytes.data() + at, &value, width); });
        auto reader = OpenBytes(hostile);
        if (!reader.ok()) continue;
        for (const CachedKey& key : AllKeys((*reader)->description())) {
          ASSERT_LE((*reader)->RecordOffset(key) + (*reader)->expert_bytes(key.precision), hostile.size()) << "byte " << at;
        }
        ASSERT_LE((*reader)->description().trunk_bytes, hostile.size()) << "byte " << at;
      }
    }
  }
}

TEST_F(StoreReaderTest, NamesTheLyingField) {
  const struct {
    size_t at;
    uint32_t value;
    std::string expected;
  } cases[] = {
      {12, 512, "alignment is 512, expected 4096"},
      {40, 12288, "trunk bytes is 12288, expected 8192"},
      {56, 9000, "expected"},
      {72, 0, "records offset is 0"},
      {80, 1, "reserved byte 80 is not 0"},
      {128 + 4 + 17, 4, "2 layers x 4 experts"},                   // experts per layer, behind the spec of 17 bytes
      {128 + 4 + 17 + 4, 1u << 30, "MoE layers: 1073741824 x 4"},  // number of MoE layers
      {128 + 4 + 17 + 8, 2, "not ascending: 2 follows 2"},
      {128 + 4 + 17 + 12, 70000, "MoE layer is 70000"},
      {128 + 4 + 17 + 16, 1u << 28, "expert precisions: 268435456 x 112"},
      {128 + 4 + 17 + 20, 77, "format number 77, expected one of 0 (f32)"},
      {128 + 4 + 17 + 24, 4, "an expert has 4 segments"},
  };
  for (const auto& [at, value, expected] : cases) {
    const absl::Status status = OpenBytes(WithHeader([at = at, value = value](std::string& bytes) {
                                  std::memcpy(bytes.data() + at, &value, 4);
                                })).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << expected;
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  }
}

TEST_F(StoreReaderTest, SurvivesGarbage) {
  std::mt19937_64 random(5);
  const uint64_t end = kHeaderBytes + Layout().description_bytes();
  for (int round = 0; round < 20000; ++round) {
    const std::string garbage = WithHeader([&](std::string& bytes) {
      for (int changes = 1 + static_cast<int>(random() % 6); changes > 0; --changes) {
        const size_t at = 12 + random() % (end - 20);
        const uint64_t value = random() >> (random() % 64);
        std::memcpy(bytes.data() + at, &value, size_t{1} << (random() % 4));
      }
      bytes.resize(std::min<size_t>(bytes.size(), 1 + random() % (2 * bytes.size())), 'x');
      bytes.resize(std::max<size_t>(bytes.size(), Layout().trunk_offset()));
    });
    auto reader = OpenBytes(garbage);
    if (reader.ok()) Verify(**reader).IgnoreError();
  }
  for (int round = 0; round < 200; ++round) {
    std::string garbage = RandomBytes(random() % 20000, random());
    if (garbage.size() >= 12) std::memcpy(garbage.data(), "MOEDSTOR\1\0\0\0", 12);
    EXPECT_FALSE(OpenBytes(garbage).ok());
  }
}

}  // namespace
}  // namespace moed
