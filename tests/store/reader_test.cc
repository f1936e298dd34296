#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "core/store/checksum.h"
#include "core/store/damage.h"
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
    MemoryFolder folder;
    bytes_ = new std::string(WriteSmallStore(folder / "small.store"));
    mixed_ = new std::string(WriteSmallStore(folder / "mixed.store", MixedDescription()));
    ungated_ = new std::string(WriteSmallStore(folder / "ungated.store", UngatedDescription()));
  }
  static void TearDownTestSuite() {
    delete bytes_;
    delete mixed_;
    delete ungated_;
  }

  static FileLayout Layout(const StoreDescription& description = SmallDescription()) {
    return *FileLayout::Plan(description, description.tokenizer.size());
  }
  // `bytes` after `change`, with a header checksum that fits again.
  static std::string WithHeader(std::string bytes, uint64_t description_bytes, const std::function<void(std::string&)>& change) {
    change(bytes);
    ChecksumStream stream;
    stream.Update(Bytes(bytes).first(120));
    stream.Update(Bytes(bytes).subspan(kHeaderBytes, description_bytes));
    const uint64_t checksum = stream.Value();
    std::memcpy(bytes.data() + 120, &checksum, 8);
    return bytes;
  }
  static std::string WithHeader(const std::function<void(std::string&)>& change) {
    return WithHeader(*bytes_, Layout().description_bytes(), change);
  }
  static void RefusesHostileHeaders(const std::string& stored, const FileLayout& layout);
  static void NamesTheLyingField(const std::string& stored, const FileLayout& layout, size_t at, uint32_t value,
                                 const std::string& expected) {
    const std::string lying =
        WithHeader(stored, layout.description_bytes(), [&](std::string& bytes) { std::memcpy(bytes.data() + at, &value, 4); });
    const absl::Status status = OpenBytes(lying).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << expected;
    EXPECT_TRUE(IsDamage(status)) << expected;
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  }

  static inline std::string* bytes_ = nullptr;
  static inline std::string* mixed_ = nullptr;
  static inline std::string* ungated_ = nullptr;
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
    ASSERT_EQ(found.precisions[p].layers.size(), expected.precisions[p].layers.size());
    for (size_t i = 0; i < expected.precisions[p].layers.size(); ++i) {
      const ExpertLayout& layout = expected.precisions[p].layers[i];
      EXPECT_EQ(found.precisions[p].layers[i].record_bytes, layout.record_bytes);
      EXPECT_EQ((*reader)->expert_bytes({expected.moe_layers[i], 0, static_cast<Precision>(p)}), layout.record_bytes);
      for (int part = 0; part < kExpertParts; ++part) {
        EXPECT_EQ(found.precisions[p].layers[i].segments[part].format, layout.segments[part].format);
      }
    }
  }
  EXPECT_EQ((*reader)->all_expert_bytes(), 6 * expected.precisions[0].layers[0].record_bytes);
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
  ASSERT_TRUE(ReadTrunkInto(**reader, std::as_writable_bytes(std::span(trunk))).ok());
  for (size_t i = 0; i < description.trunk.size(); ++i) {
    auto tensor = (*reader)->FindTensor(description.trunk[i].name);
    ASSERT_TRUE(tensor.ok());
    EXPECT_EQ((*tensor)->offset % kTensorAlignment, 0u);
    EXPECT_EQ(trunk.substr((*tensor)->offset, (*tensor)->bytes), TensorContents(description, i));
  }
  std::vector<std::byte> page(kStoreAlignment);
  std::string pieces;
  const auto take = [&](uint64_t offset, std::span<const std::byte> piece) {
    EXPECT_EQ(offset, pieces.size());
    pieces.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return absl::OkStatus();
  };
  ASSERT_TRUE((*reader)
                  ->ReadTrunk(
                      nullptr, [&](uint64_t) { return std::span(page); }, take)
                  .ok());
  EXPECT_EQ(pieces, trunk);
  for (const CachedKey& key : AllKeys(description)) {
    ASSERT_TRUE((*reader)->CheckKey(key).ok());
    const uint64_t record = (*reader)->RecordOffset(key);
    EXPECT_EQ(record % kStoreAlignment, 0u);
    for (const ExpertSegment& segment : (*reader)->expert_layout(key).segments) {
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
  EXPECT_THAT(std::string(ReadTrunkInto(**bad, std::as_writable_bytes(std::span(trunk))).message()),
              HasSubstr("trunk tensor \"norm\""));
  std::vector<std::byte> page(kStoreAlignment);
  const auto take = [](uint64_t, std::span<const std::byte>) { return absl::OkStatus(); };
  const auto place = [&](uint64_t) { return std::span(page); };
  EXPECT_THAT(std::string((*bad)->ReadTrunk(nullptr, place, take).message()), HasSubstr("trunk tensor \"norm\""));
}

TEST_F(StoreReaderTest, VerifyNamesEachDamageAndCanBeEnded) {
  std::string damaged = *bytes_;
  for (size_t i = 0; i < 3; ++i) damaged[Layout().PieceAt(i).offset] ^= 1;
  EXPECT_THAT(std::string(OpenAndVerify(damaged).message()),
              AllOf(HasSubstr("\"embed\""), HasSubstr("\"" + SmallDescription().trunk[1].name + "\""),
                    HasSubstr("\"" + SmallDescription().trunk[2].name + "\"")));

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
}

TEST_F(StoreReaderTest, WhatIsReadAndIsNoStoreIsDamageAndWhatCannotBeReadIsNot) {
  MemoryFolder folder;
  const std::string path = folder / "s", beside = folder / "beside";
  for (const std::string& bytes : {std::string(), bytes_->substr(0, 5000), std::string(5000, '\0'), std::string(5000, '{'),
                                   WithHeader([](std::string& bytes) { bytes[8] = 9; })}) {
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_TRUE(IsDamage(StoreReader::Open(path).status())) << bytes.size();
  }
  std::filesystem::create_symlink(beside, beside);
  for (const std::string& unread : {folder / "none", beside, folder / ""}) {
    const absl::Status status = StoreReader::Open(unread).status();
    EXPECT_FALSE(status.ok() || IsDamage(status)) << status;
  }
}

// Headers whose checksum fits but whose contents lie: each field, with values that overflow, overlap or ask for much memory.
TEST_F(StoreReaderTest, RefusesHostileHeaders) { RefusesHostileHeaders(*bytes_, Layout()); }
TEST_F(StoreReaderTest, RefusesHostileHeadersOfMixedFormats) { RefusesHostileHeaders(*mixed_, Layout(MixedDescription())); }
TEST_F(StoreReaderTest, RefusesHostileHeadersWithoutGates) { RefusesHostileHeaders(*ungated_, Layout(UngatedDescription())); }

void StoreReaderTest::RefusesHostileHeaders(const std::string& stored, const FileLayout& layout) {
  const std::vector<uint64_t> values = {
      0, 1, 4096, stored.size(), uint64_t{1} << 31, uint64_t{1} << 62, UINT64_MAX, UINT64_MAX - 4095};
  const uint64_t end = kHeaderBytes + layout.description_bytes() - layout.expert_piece_count() * 8;
  for (uint64_t at = 12; at + 4 <= end; ++at) {
    if (at >= 120 && at < kHeaderBytes) continue;
    for (const uint64_t value : values) {
      for (const size_t width : {size_t{1}, size_t{4}, size_t{8}}) {
        // Tensor checksums, the spec and names may hold anything: then the store opens, and verification has the last word.
        const std::string hostile = WithHeader(stored, layout.description_bytes(),
                                               [&](std::string& bytes) { std::memcpy(bytes.data() + at, &value, width); });
        auto reader = OpenBytes(hostile);
        if (!reader.ok()) continue;
        for (const CachedKey& key : AllKeys((*reader)->description())) {
          ASSERT_LE((*reader)->RecordOffset(key) + (*reader)->expert_bytes(key), hostile.size()) << "byte " << at;
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
      {128 + 4 + 17 + 16, 1u << 28, "expert precisions: 268435456 x 80"},
      {128 + 4 + 17 + 20, 77, "format number 77, expected one of 0 (f32)"},
      {128 + 4 + 17 + 24, 4, "an expert has 4 segments"},
  };
  for (const auto& [at, value, expected] : cases) NamesTheLyingField(*bytes_, Layout(), at, value, expected);

  constexpr size_t first_layout = 128 + 4 + 17 + 20, first_segment = first_layout + 16, a_layout = 112;
  const struct {
    size_t at;
    uint32_t value;
    std::string expected;
  } of_layers[] = {
      {first_layout - 4, 1u << 28, "expert precisions: 268435456 x 160"},  // layouts of two layers each
      {first_layout, 4, "reserved field in expert layout is 4"},
      {first_segment + 12, 300, "expert format is 300"},
      {first_segment + 12, 77, "layer 0 gate has format number 77, expected one of 0 (f32)"},
      {first_segment + 12, 3, "layer 0 gate: bytes is"},
      {first_layout + a_layout + 8, 4096, "layer 2: record bytes is 4096"},
      {first_segment + a_layout + 4, 21, "layer 2 gate is (21, 70), expected (20, 70)"},
  };
  for (const auto& [at, value, expected] : of_layers) {
    NamesTheLyingField(*mixed_, Layout(MixedDescription()), at, value, expected);
  }

  const struct {
    size_t at;
    uint32_t value;
    std::string expected;
  } of_ungated[] = {
      {first_layout + 4, 1, "an expert has 1 segments, expected 2 or 3"},
      {first_layout + 4, 3, "segment 0 is part 1, expected 0"},
      {first_segment, 0, "segment 0 is part 0, expected 1"},
      {first_segment + 32, 1, "segment 1 is part 1, expected 2"},
  };
  for (const auto& [at, value, expected] : of_ungated) {
    NamesTheLyingField(*ungated_, Layout(UngatedDescription()), at, value, expected);
  }
}

TEST_F(StoreReaderTest, ExpertsMayLackAGate) {
  const StoreDescription expected = UngatedDescription();
  auto reader = OpenBytes(*ungated_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_TRUE(Verify(**reader).ok());
  EXPECT_EQ((*reader)->layout().expert_piece_count(), AllKeys(expected).size() * 2);
  for (const CachedKey& key : AllKeys(expected)) {
    const ExpertLayout& layout = (*reader)->expert_layout(key);
    EXPECT_EQ(layout.Find(ExpertPart::kGate), nullptr);
    ASSERT_EQ(layout.segments.size(), 2u);
    EXPECT_EQ(layout.segments[0].offset, 0u);
    for (const ExpertSegment& segment : layout.segments) {
      const std::string bytes = ungated_->substr((*reader)->RecordOffset(key) + segment.offset, segment.bytes);
      EXPECT_EQ(bytes, SegmentContents(expected, key, segment.part));
      EXPECT_TRUE((*reader)->VerifySegment(key, segment.part, Bytes(bytes)).ok());
    }
  }
  std::string damaged = *ungated_;
  damaged.back() ^= 1;
  EXPECT_THAT(std::string(Verify(**OpenBytes(damaged)).message()), HasSubstr("is not zero"));
  damaged = *ungated_;
  damaged[(*reader)->RecordOffset({LayerId(2), 1, 1})] ^= 1;
  EXPECT_THAT(std::string(Verify(**OpenBytes(damaged)).message()),
              HasSubstr("expert 1 of layer 2 at precision 1 (q4), up is damaged"));
}

TEST_F(StoreReaderTest, FormatsMayDifferByLayerAndPart) {
  const StoreDescription expected = MixedDescription();
  auto reader = OpenBytes(*mixed_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_TRUE(Verify(**reader).ok());
  EXPECT_EQ((*mixed_)[8], 2) << "a version that readers of one format for all do not take";
  EXPECT_EQ(PrecisionName((*reader)->description().precisions[0]), "f32+q8+q4");
  EXPECT_EQ(PrecisionName((*reader)->description().precisions[1]), "f32+q2");
  uint64_t end = (*reader)->layout().records_offset(), all = 0;
  for (Precision precision = 0; precision < 2; ++precision) {
    for (size_t i = 0; i < expected.moe_layers.size(); ++i) {
      const ExpertLayout& layout = expected.precisions[precision].layers[i];
      for (int expert = 0; expert < expected.experts_per_layer; ++expert) {
        const CachedKey key{expected.moe_layers[i], expert, precision};
        EXPECT_EQ((*reader)->RecordOffset(key), end);
        EXPECT_EQ((*reader)->expert_bytes(key), layout.record_bytes);
        for (const ExpertSegment& segment : (*reader)->expert_layout(key).segments) {
          EXPECT_EQ(segment.format, layout.segments[static_cast<size_t>(segment.part)].format);
          EXPECT_EQ(mixed_->substr(end + segment.offset, segment.bytes), SegmentContents(expected, key, segment.part));
        }
        end += layout.record_bytes;
        all += precision == kReferencePrecision ? layout.record_bytes : 0;
      }
    }
  }
  EXPECT_EQ(end, mixed_->size());
  EXPECT_EQ((*reader)->all_expert_bytes(), all);
  EXPECT_NE(expected.precisions[0].layers[0].record_bytes, expected.precisions[0].layers[1].record_bytes);
  EXPECT_EQ((*reader)->largest_expert_bytes(0), LargestRecordBytes(expected));

  std::string damaged = *mixed_;
  const CachedKey key{LayerId(2), 1, 0};
  damaged[(*reader)->RecordOffset(key) + expected.precisions[0].layers[1].segments[1].offset] ^= 1;
  EXPECT_THAT(std::string(Verify(**OpenBytes(damaged)).message()),
              HasSubstr("expert 1 of layer 2 at precision 0 (q8), up is damaged"));
}

// The bytes are those that were written before layers could differ.
TEST_F(StoreReaderTest, OneFormatForAllIsVersionOne) {
  EXPECT_EQ((*bytes_)[8], 1);
  EXPECT_EQ(Checksum(*bytes_), 0x81a007cf915b8cbbu);
  // One layer's layout in the other version's way takes as many bytes, and is refused: a description has one legal file.
  StoreDescription description = SmallDescription();
  description.moe_layers.resize(1);
  for (ExpertPrecision& precision : description.precisions) precision.layers.resize(1);
  MemoryFolder folder;
  const std::string stored = WriteSmallStore(folder / "one.store", description);
  const std::string other = WithHeader(stored, Layout(description).description_bytes(), [](std::string& bytes) {
    bytes[8] = 2;
    for (size_t layout = 128 + 4 + 17 + 16, p = 0; p < 2; layout += 112, ++p) {
      for (int part = 0; part < kExpertParts; ++part) bytes[layout + 16 + part * 32 + 12] = bytes[layout];
      bytes[layout] = 0;
    }
  });
  ASSERT_TRUE(OpenBytes(stored).ok());
  EXPECT_THAT(std::string(OpenBytes(other).status().message()), HasSubstr("which is version 1, not 2"));
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

// Of a file with a tokenizer and a description, no more than what may be.
TEST_F(StoreReaderTest, NothingBeyondTheLimitsIsRead) {
  class WatchedFile final : public RandomAccessFile {
   public:
    explicit WatchedFile(std::string bytes) : file_(MakeMemoryFile("watched.store", std::move(bytes))) {}
    uint64_t size() const override { return file_->size(); }
    const std::string& path() const override { return file_->path(); }
    absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
      end = std::max(end, offset + out.size());
      return file_->ReadAt(offset, out);
    }
    mutable uint64_t end = 0;  // of what was read

   private:
    const std::unique_ptr<RandomAccessFile> file_;
  };
  const FileLayout layout = Layout();
  const uint64_t description = layout.description_bytes(), tokenizer = layout.PieceAt(layout.TokenizerPiece()).bytes;
  const auto open = [&](const StoreLimits& limits, uint64_t read) {
    const auto file = std::make_shared<WatchedFile>(*bytes_);
    const absl::Status status = StoreReader::Open(file, limits).status();
    EXPECT_LE(file->end, read);
    EXPECT_FALSE(IsDamage(status));
    return status;
  };
  EXPECT_TRUE(open({description, tokenizer}, bytes_->size()).ok());
  const absl::Status described = open({description - 1, tokenizer}, kHeaderBytes);
  EXPECT_TRUE(absl::IsOutOfRange(described)) << described;
  EXPECT_THAT(std::string(described.message()), AllOf(HasSubstr("watched.store: the description has "), HasSubstr("at most")));
  const absl::Status tokenized = open({description, tokenizer - 1}, layout.trunk_offset());
  EXPECT_TRUE(absl::IsOutOfRange(tokenized)) << tokenized;
  EXPECT_THAT(std::string(tokenized.message()), HasSubstr(StrCat("the tokenizer has ", tokenizer, " bytes, at most ")));
}

}  // namespace
}  // namespace moed
