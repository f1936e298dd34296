// Coded segments are the same bytes again, and what lies about itself is an error.
#include "core/store/coding.h"

#include <gmock/gmock.h>

#include "core/base/buffer.h"
#include "core/store/header.h"
#include "tests/store/file_size_limit.h"
#include "tests/store/small_store.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

uint64_t Pages(uint64_t bytes) { return RoundUp(bytes, kStoreAlignment); }

// So many low bits of each byte are random.
std::string Contents(size_t bytes, int bits, uint64_t seed) {
  std::string contents = RandomBytes(bytes, seed);
  for (char& byte : contents) byte &= static_cast<char>((1 << bits) - 1);
  return contents;
}

std::span<const std::byte> BytesOf(const std::string& text) { return std::as_bytes(std::span(text)); }

// As it is read: at the end of the pages that the segment has in memory.
absl::StatusOr<std::string> DecodeInPlace(FormatId format, std::span<const std::byte> coded, size_t bytes) {
  std::vector<std::byte> memory(Pages(bytes), std::byte{0x77});
  const auto read = std::span(memory).last(Pages(coded.size())).first(coded.size());
  std::ranges::copy(coded, read.begin());
  SegmentDecoder decoder;
  const absl::Status status = decoder.Decode(format, read, std::span(memory).first(bytes));
  if (!status.ok()) return status;
  return std::string(reinterpret_cast<const char*>(memory.data()), bytes);
}

TEST(CodingTest, GivesTheSameBytesOfEveryFormat) {
  for (const Format& format : Formats()) {
    for (const size_t blocks : {size_t{16}, size_t{255}, (600u << 10) / format.panel_block_bytes}) {
      for (const int bits : {0, 2, 5, 8}) {
        SCOPED_TRACE(std::string(format.name) + ", " + std::to_string(blocks) + " blocks, " + std::to_string(bits) + " bits");
        const std::string plain = Contents(blocks * format.panel_block_bytes, bits, blocks + static_cast<size_t>(bits));
        const std::vector<std::byte> coded = EncodeSegment(format.id, BytesOf(plain));
        EXPECT_TRUE(bits < 8 || coded.empty());
        EXPECT_TRUE(bits == 8 || blocks == 16 || !coded.empty());
        if (coded.empty()) continue;
        EXPECT_LE(Pages(coded.size()) * 100, Pages(plain.size()) * (100 - kUsualCodingGain));
        std::string apart(plain.size(), '\0');
        SegmentDecoder decoder;
        const absl::Status status = decoder.Decode(format.id, coded, std::as_writable_bytes(std::span(apart)));
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_TRUE(apart == plain);
        const absl::StatusOr<std::string> in_place = DecodeInPlace(format.id, coded, plain.size());
        ASSERT_TRUE(in_place.ok()) << in_place.status();
        EXPECT_TRUE(*in_place == plain);
      }
    }
  }
}

// Seven random bits of eight: a ninth of a block of q4 are scales, so 12 % is what there is to save.
TEST(CodingTest, SavesAsMuchAsIsAskedForOrNothing) {
  const std::string plain = Contents(FormatOf(FormatId::kQ4).panel_block_bytes * 4096, 7, 1);
  bool kept = false;
  for (const int least : {1, 4, 8, 11, 14, 50, 99}) {
    SCOPED_TRACE(least);
    const std::vector<std::byte> coded = EncodeSegment(FormatId::kQ4, BytesOf(plain), least);
    EXPECT_TRUE(coded.empty() || !kept) << "less was not to be had";
    kept = coded.empty();
    EXPECT_EQ(kept, least > 12);
    EXPECT_LE(Pages(coded.size()) * 100, Pages(plain.size()) * static_cast<uint64_t>(100 - least));
  }
}

TEST(CodingTest, OfLyingSegmentsNothingIsBelieved) {
  std::mt19937 random(5);
  for (const FormatId format : {FormatId::kBF16, FormatId::kF32, FormatId::kQ2, FormatId::kFp8}) {
    const std::string plain = Contents(FormatOf(format).panel_block_bytes * (300u << 10) / 512, 3, 7);
    const size_t bytes = plain.size() / FormatOf(format).panel_block_bytes * FormatOf(format).panel_block_bytes;
    const std::vector<std::byte> coded = EncodeSegment(format, BytesOf(plain).first(bytes));
    ASSERT_FALSE(coded.empty());
    for (const size_t kept : {size_t{0}, size_t{1}, size_t{11}, coded.size() / 2, coded.size() - 1}) {
      EXPECT_TRUE(absl::IsDataLoss(DecodeInPlace(format, std::span(coded).first(kept), bytes).status())) << kept;
    }
    std::vector<std::byte> longer = coded;
    longer.push_back(std::byte{1});
    EXPECT_TRUE(absl::IsDataLoss(DecodeInPlace(format, longer, bytes).status()));
    // Lengths: of other bytes than there are, of planes that would be larger than they are.
    for (const uint32_t length : {0u, 1u, 1u << 17, 1u << 31, UINT32_MAX}) {
      std::vector<std::byte> lying = coded;
      std::memcpy(lying.data(), &length, sizeof(length));
      EXPECT_TRUE(absl::IsDataLoss(DecodeInPlace(format, lying, bytes).status())) << length;
    }
    for (int round = 0; round < 100; ++round) {
      std::vector<std::byte> damaged = coded;
      damaged[random() % damaged.size()] ^= static_cast<std::byte>(1 << random() % 8);
      const absl::StatusOr<std::string> decoded = DecodeInPlace(format, damaged, bytes);
      EXPECT_TRUE(decoded.ok() || absl::IsDataLoss(decoded.status())) << decoded.status();
    }
  }
}

TEST(CodedStoreTest, IsReadAsItWasWrittenInWhateverOrder) {
  MemoryFolder folder;
  const StoreDescription description = CodedDescription();
  const std::string bytes = WriteSmallStore(folder / "a.store", description);
  auto reader = StoreReader::Open(folder / "a.store");
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE((*reader)->VerifyAll([](uint64_t, uint64_t) { return true; }).ok());
  EXPECT_LT((*reader)->file_bytes(), WriteSmallStore(folder / "plain.store", MixedDescription()).size());
  SegmentDecoder decoder;
  for (const CachedKey& key : AllKeys(description)) {
    const ExpertLayout& layout = (*reader)->expert_layout(key);
    std::string record(layout.record_bytes, '\x55');
    const auto memory = std::as_writable_bytes(std::span(record));
    ASSERT_LE((*reader)->stored_bytes(key), layout.record_bytes);
    std::ranges::copy(Bytes(bytes).subspan((*reader)->RecordOffset(key), (*reader)->stored_bytes(key)),
                      memory.last((*reader)->stored_bytes(key)).begin());
    ASSERT_TRUE((*reader)->Decode(key, 0, layout.segments.size(), memory, decoder).ok());
    for (const ExpertSegment& segment : layout.segments) {
      EXPECT_EQ(record.substr(segment.offset, segment.bytes), SegmentContents(description, key, segment.part));
    }
  }
  auto writer = StoreWriter::Open(folder / "b.store", description, {});
  ASSERT_TRUE(writer.ok());
  std::vector<CachedKey> keys = AllKeys(description);
  std::ranges::reverse(keys);
  for (const CachedKey& key : keys) {
    for (const ExpertPart part : {ExpertPart::kDown, ExpertPart::kGate, ExpertPart::kUp}) {
      ASSERT_TRUE((*writer)->AppendExpert(key, part, Bytes(SegmentContents(description, key, part))).ok());
    }
  }
  WritePieces(**writer, description);
  std::string back(description.precisions[1].layers[0].segments[2].bytes, '\0');
  ASSERT_TRUE((*writer)->ReadBack({LayerId(0), 1, 1}, ExpertPart::kDown, std::as_writable_bytes(std::span(back))).ok());
  EXPECT_EQ(back, SegmentContents(description, {LayerId(0), 1, 1}, ExpertPart::kDown));
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE(FileContents(folder / "b.store") == bytes);
}

TEST(CodedStoreTest, SegmentsAreKeptAsTheyAreWhereTheWriterIsToSaveMore) {
  MemoryFolder folder;
  const StoreDescription description = CodedDescription();
  std::vector<uint64_t> stored;
  for (const int least : {1, 99}) {
    const std::string path = folder / std::to_string(least);
    auto writer = StoreWriter::Open(path, description, {.least_coding_gain = least});
    ASSERT_TRUE(writer.ok());
    WritePieces(**writer, description);
    ASSERT_TRUE((*writer)->Finish().ok());
    auto reader = StoreReader::Open(path);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_TRUE((*reader)->VerifyAll([](uint64_t, uint64_t) { return true; }).ok());
    stored.push_back((*reader)->stored_bytes(AllKeys(description)[0]));
  }
  EXPECT_LT(stored[0], stored[1]);
  EXPECT_EQ(stored[1], RoundUp(description.precisions[0].layers[0].record_bytes, kStoreAlignment));
}

TEST(CodedStoreTest, ResumesAfterEveryPieceToTheSameBytes) {
  MemoryFolder folder;
  const StoreDescription description = CodedDescription();
  const std::string expected = WriteSmallStore(folder / "expected.store", description);
  const size_t pieces = description.trunk.size() + AllKeys(description).size() * kExpertParts;
  for (size_t stop = 0; stop <= pieces; stop += 3) {
    const std::string path = folder / ("stop" + std::to_string(stop));
    const StoreWriterOptions always{.sync_bytes = 1};
    WritePieces(**StoreWriter::Open(path, description, always), description, stop);
    auto writer = StoreWriter::Open(path, description, always);
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_EQ((*writer)->start(), StoreWriter::Start::kResumed);
    EXPECT_EQ(WritePieces(**writer, description), pieces - stop);
    ASSERT_TRUE((*writer)->Finish().ok());
    ASSERT_TRUE(FileContents(path) == expected) << "stopped after " << stop;
  }
}

TEST(CodedStoreTest, WhatIsFinishedStaysWhereTheDiskHasNoRoomForTheRest) {
  MemoryFolder folder;
  const StoreDescription description = CodedDescription();
  const std::string expected = WriteSmallStore(folder / "expected.store", description), path = folder / "full.store";
  const StoreWriterOptions always{.sync_bytes = 1};
  const size_t pieces = description.trunk.size() + AllKeys(description).size() * kExpertParts, stop = pieces / 2;
  WritePieces(**StoreWriter::Open(path, description, always), description, stop);
  const uint64_t reserved = std::filesystem::file_size(path + ".partial");
  {
    const FileSizeLimit small(16384);
    const absl::Status status = StoreWriter::Open(path, description, always).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("bytes are needed"));
  }
  ASSERT_TRUE(std::filesystem::exists(path + ".partial"));
  EXPECT_LT(std::filesystem::file_size(path + ".partial"), reserved) << "no room is held for what cannot be written";
  const auto writer = StoreWriter::Open(path, description, always);
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_EQ((*writer)->start(), StoreWriter::Start::kResumed);
  EXPECT_EQ(WritePieces(**writer, description), pieces - stop);
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE(FileContents(path) == expected);
}

TEST(CodedStoreTest, NamesWhatIsDamagedAndRefusesLyingLengths) {
  MemoryFolder folder;
  const StoreDescription description = CodedDescription();
  const std::string bytes = WriteSmallStore(folder / "a.store", description);
  const auto open = [](std::string contents) { return StoreReader::Open(MakeMemoryFile("made", std::move(contents))); };
  const CachedKey key{LayerId(2), 1, 0};
  const uint64_t record = open(bytes).value()->RecordOffset(key);
  for (const size_t at : {size_t{0}, size_t{3}, size_t{40}}) {
    std::string damaged = bytes;
    damaged[record + at] ^= 1;
    const absl::Status status = open(damaged).value()->VerifyAll([](uint64_t, uint64_t) { return true; });
    EXPECT_TRUE(absl::IsDataLoss(status));
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("expert 1 of layer 2 at precision 0"), HasSubstr("damaged")));
  }
  // The last number of the description: bytes of a segment in the file.
  const uint64_t end = kHeaderBytes + FileLayout::Plan(description, description.tokenizer.size())->description_bytes();
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 30, UINT64_MAX}) {
    std::string lying = bytes;
    std::memcpy(lying.data() + end - sizeof(value), &value, sizeof(value));
    ChecksumStream checksum;
    checksum.Update(Bytes(lying).first(120));
    checksum.Update(Bytes(lying).subspan(kHeaderBytes, end - kHeaderBytes));
    const uint64_t sum = checksum.Value();
    std::memcpy(lying.data() + 120, &sum, sizeof(sum));
    const auto reader = open(lying);
    if (value == 1) {  // may be: as many pages as before, and a segment that is not one
      EXPECT_TRUE(!reader.ok() || !(*reader)->VerifyAll([](uint64_t, uint64_t) { return true; }).ok());
    } else {
      EXPECT_THAT(std::string(reader.status().message()), HasSubstr("a coded segment has"));
    }
  }
}

}  // namespace
}  // namespace moed
