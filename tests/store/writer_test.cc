#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "tests/store/file_size_limit.h"
#include "tests/store/small_store.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const StoreWriterOptions kSyncAlways{.identity = 1, .sync_bytes = 1};

std::unique_ptr<StoreWriter> OpenWriter(const std::string& path, const StoreWriterOptions& options = kSyncAlways) {
  auto writer = StoreWriter::Open(path, SmallDescription(), options);
  EXPECT_TRUE(writer.ok()) << writer.status();
  return std::move(*writer);
}

bool Exists(const std::string& path) { return std::filesystem::exists(path); }

TEST(StoreWriterTest, LeavesNothingButTheStore) {
  MemoryFolder folder;
  const std::string path = folder / "a.store";
  const std::string bytes = WriteSmallStore(path);
  EXPECT_FALSE(Exists(path + ".partial"));
  EXPECT_FALSE(Exists(path + ".partial.journal"));
  EXPECT_EQ(bytes, WriteSmallStore(folder / "b.store")) << "the same contents give the same file";
}

TEST(StoreWriterTest, PiecesMayComeInterleavedAndInParts) {
  MemoryFolder folder;
  const StoreDescription description = SmallDescription();
  auto writer = OpenWriter(folder / "parts.store");
  const CachedKey first{LayerId(0), 0, 0}, second{LayerId(0), 0, 1};
  const std::string a = SegmentContents(description, first, ExpertPart::kUp);
  const std::string b = SegmentContents(description, second, ExpertPart::kUp);
  for (const auto& [begin, count] : {std::pair<size_t, size_t>{0, 100}, {100, 1}, {101, std::string::npos}}) {
    ASSERT_TRUE(writer->AppendExpert(first, ExpertPart::kUp, Bytes(a.substr(begin, count))).ok());
    EXPECT_EQ(writer->HasExpert(first, ExpertPart::kUp), count == std::string::npos);
    ASSERT_TRUE(writer->AppendExpert(second, ExpertPart::kUp, Bytes(b.substr(begin, count))).ok());
  }
  WritePieces(*writer, description);
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(FileContents(folder / "parts.store"), WriteSmallStore(folder / "whole.store"));
}

TEST(StoreWriterTest, ResumesAfterEveryPieceToTheSameBytes) {
  MemoryFolder folder;
  const StoreDescription description = SmallDescription();
  const std::string expected = WriteSmallStore(folder / "expected.store");
  const size_t pieces = description.trunk.size() + AllKeys(description).size() * kExpertParts;
  for (size_t stop = 0; stop <= pieces; ++stop) {
    const std::string path = folder / ("stop" + std::to_string(stop));
    {
      auto writer = OpenWriter(path);
      EXPECT_EQ(writer->start(), StoreWriter::Start::kFresh);
      WritePieces(*writer, description, stop);
    }
    EXPECT_FALSE(Exists(path));
    EXPECT_EQ(StoreReader::Open(path + ".partial").status().code(), absl::StatusCode::kFailedPrecondition);
    auto writer = OpenWriter(path);
    EXPECT_EQ(writer->start(), StoreWriter::Start::kResumed);
    EXPECT_EQ(WritePieces(*writer, description), pieces - stop);
    ASSERT_TRUE(writer->Finish().ok());
    ASSERT_EQ(FileContents(path), expected) << "stopped after " << stop;
  }
}

// Writes the store in a process that dies at its `call`th system call, before that does anything. False if it ended before.
bool KilledAtSystemCall(int call, const std::string& path, const StoreDescription& description) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
    raise(SIGSTOP);
    auto writer = StoreWriter::Open(path, description, kSyncAlways);
    if (!writer.ok()) _exit(2);
    WritePieces(**writer, description);
    _exit((*writer)->Finish().ok() ? 0 : 3);
  }
  if (child < 0) {
    ADD_FAILURE() << strerror(errno);
    return false;
  }
  int status = 0;
  waitpid(child, &status, 0);
  for (int stop = 1; stop < 2 * call && WIFSTOPPED(status); ++stop) {  // each call stops twice, as it begins and as it ends
    EXPECT_EQ(ptrace(PTRACE_SYSCALL, child, nullptr, nullptr), 0) << strerror(errno);
    waitpid(child, &status, 0);
  }
  if (!WIFSTOPPED(status)) {
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    return false;
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return true;
}

TEST(StoreWriterTest, KilledAtAnySystemCallItResumesToTheSameBytes) {
  MemoryFolder folder;
  const StoreDescription description = SmallDescription();
  const std::string expected = WriteSmallStore(folder / "expected.store");
  const std::string once = folder / "once.store", often = folder / "often.store";
  int left_unfinished = 0, left_whole = 0;
  for (int call = 1; KilledAtSystemCall(call, once, description); ++call) {
    left_unfinished += Exists(once + ".partial") ? 1 : 0;
    if (Exists(once)) {
      ++left_whole;
      ASSERT_EQ(FileContents(once), expected) << "what has the final name is whole, call " << call;
    }
    auto writer = OpenWriter(once);
    WritePieces(*writer, description);
    ASSERT_TRUE(writer->Finish().ok());
    ASSERT_EQ(FileContents(once), expected) << "killed at call " << call;
    std::filesystem::remove(once);

    // This one is taken up by a process that is killed as well.
    KilledAtSystemCall(call, often, description);
    if (!Exists(often)) continue;
    ASSERT_EQ(FileContents(often), expected) << "killed at calls up to " << call;
    std::filesystem::remove(often);
  }
  EXPECT_GT(left_unfinished, 0);
  EXPECT_GT(left_whole, 0);
}

TEST(StoreWriterTest, ReadsBackWhatIsWholeAndSaysWhatIsNot) {
  MemoryFolder folder;
  const std::string path = folder / "back.store";
  const CachedKey key{LayerId(0), 1, 1};
  const std::string up = SegmentContents(SmallDescription(), key, ExpertPart::kUp);
  auto writer = OpenWriter(path);
  ASSERT_TRUE(writer->AppendExpert(key, ExpertPart::kUp, Bytes(up)).ok());
  std::string back(up.size(), '\0');
  const auto out = std::as_writable_bytes(std::span(back));
  ASSERT_TRUE(writer->ReadBack(key, ExpertPart::kUp, out).ok());
  EXPECT_EQ(back, up);
  ASSERT_TRUE(writer->Flush().ok());
  const uint64_t offset = writer->layout().PieceAt(writer->layout().ExpertPiece(key, ExpertPart::kUp)).offset;
  writer.reset();
  std::fstream(path + ".partial", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<std::streamoff>(offset))
      .put('!');
  writer = OpenWriter(path);
  ASSERT_TRUE(writer->HasExpert(key, ExpertPart::kUp));
  EXPECT_TRUE(absl::IsDataLoss(writer->ReadBack(key, ExpertPart::kUp, out)));
}

TEST(StoreWriterTest, OtherInputsStartClean) {
  MemoryFolder folder;
  const std::string expected = WriteSmallStore(folder / "expected.store");
  StoreDescription other = SmallDescription();
  other.tokenizer[0] ^= 1;  // same size, other bytes
  const struct {
    std::string name;
    uint64_t identity;
    StoreDescription description;
  } cases[] = {{"identity", 2, SmallDescription()}, {"tokenizer", 1, other}};
  for (const auto& [name, identity, description] : cases) {
    const std::string path = folder / name;
    {
      auto writer = StoreWriter::Open(path, description, {.identity = identity, .sync_bytes = 1});
      ASSERT_TRUE(writer.ok());
      // Bytes that must not survive.
      for (const CachedKey& key : AllKeys(description)) {
        const size_t size = SegmentContents(description, key, ExpertPart::kGate).size();
        ASSERT_TRUE((*writer)->AppendExpert(key, ExpertPart::kGate, Bytes(std::string(size, 'x'))).ok());
      }
    }
    auto writer = OpenWriter(path);
    EXPECT_EQ(writer->start(), StoreWriter::Start::kRestarted) << name;
    EXPECT_EQ(writer->resumed_bytes(), 0u);
    WritePieces(*writer, SmallDescription());
    ASSERT_TRUE(writer->Finish().ok());
    EXPECT_EQ(FileContents(path), expected) << name;
  }
}

// Whatever is left of the journal, only pieces that it vouches for are kept.
TEST(StoreWriterTest, ATornJournalCostsOnlyWork) {
  MemoryFolder folder;
  const StoreDescription description = SmallDescription();
  const std::string expected = WriteSmallStore(folder / "expected.store");
  const std::string path = folder / "torn.store", partial = path + ".partial", journal = partial + ".journal";
  { WritePieces(*OpenWriter(path), description, 9); }
  const std::string whole_journal = FileContents(journal), whole_partial = FileContents(partial);
  const auto put = [](const std::string& file, const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; };
  for (size_t size = 0; size <= whole_journal.size(); size += 5) {
    for (const bool flip : {false, true}) {
      std::string torn = whole_journal.substr(0, size);
      if (flip && size > 0) torn[size / 2] ^= 8;
      put(journal, torn);
      put(partial, whole_partial);
      auto writer = OpenWriter(path);
      EXPECT_GE(WritePieces(*writer, description), description.trunk.size() + AllKeys(description).size() * kExpertParts - 9);
      ASSERT_TRUE(writer->Finish().ok());
      ASSERT_EQ(FileContents(path), expected) << "journal of " << size << " bytes";
    }
  }
  // A partial file of another size is not the one that the journal speaks of.
  put(journal, whole_journal);
  put(partial, whole_partial.substr(0, whole_partial.size() / 2));
  EXPECT_EQ(OpenWriter(path)->start(), StoreWriter::Start::kRestarted);
  // A journal without its file means nothing.
  std::filesystem::remove(partial);
  put(journal, whole_journal);
  EXPECT_EQ(OpenWriter(path)->start(), StoreWriter::Start::kFresh);
}

TEST(StoreWriterTest, AJournalThatCannotBeReadCostsNothing) {
  MemoryFolder folder;
  const StoreDescription description = SmallDescription();
  const std::string path = folder / "unread.store", journal = path + ".partial.journal", aside = folder / "aside";
  { WritePieces(*OpenWriter(path), description, 9); }
  const std::string partial = FileContents(path + ".partial");
  std::filesystem::rename(journal, aside);
  std::filesystem::create_symlink(journal, journal);
  const absl::Status status = StoreWriter::Open(path, description, kSyncAlways).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr(journal)) << status;
  EXPECT_TRUE(FileContents(path + ".partial") == partial);
  std::filesystem::rename(aside, journal);
  EXPECT_EQ(OpenWriter(path)->start(), StoreWriter::Start::kResumed);
}

TEST(StoreWriterTest, JournalsOnlyAfterEnoughBytesOrTime) {
  MemoryFolder folder;
  const StoreDescription description = SmallDescription();
  FakeClock clock;
  const StoreWriterOptions options{.identity = 1, .sync_bytes = 1 << 20, .sync_seconds = 5, .clock = &clock};
  const std::string path = folder / "lazy.store";
  { WritePieces(*OpenWriter(path, options), description, 2); }
  EXPECT_EQ(OpenWriter(path, options)->resumed_bytes(), 0u) << "nothing was synced";
  {
    auto writer = OpenWriter(path, options);
    WritePieces(*writer, description, 1);
    clock.AdvanceNanos(6'000'000'000);
    WritePieces(*writer, description, 1);
    WritePieces(*writer, description, 1);
  }
  EXPECT_EQ(OpenWriter(path, options)->resumed_bytes(),
            description.trunk[0].bytes + description.trunk[1].bytes + description.tokenizer.size());
  {
    auto writer = OpenWriter(path, options);
    WritePieces(*writer, description, 1);
    ASSERT_TRUE(writer->Flush().ok());
  }
  EXPECT_TRUE(OpenWriter(path, options)->HasTensor(2));
}

TEST(StoreWriterTest, OneWriterAtATime) {
  MemoryFolder folder;
  auto writer = OpenWriter(folder / "one.store");
  const absl::Status second = StoreWriter::Open(folder / "one.store", SmallDescription(), kSyncAlways).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()), HasSubstr("another process is writing"));
}

TEST(StoreWriterTest, RefusesADescriptionThatIsNotLaidOut) {
  MemoryFolder folder;
  const std::pair<std::string, std::function<void(StoreDescription&)>> cases[] = {
      {"up: offset", [](StoreDescription& d) { d.precisions[0].layers[1].segments[1].offset += 1; }},
      {"record bytes", [](StoreDescription& d) { d.precisions[1].layers[0].record_bytes += 4096; }},
      {"as at the reference precision",
       [](StoreDescription& d) {
         d.precisions[1] = LayOutExperts(FormatId::kQ4, {{{8, 8}, {8, 8}, {8, 8}}}, 2);
       }},
      {"layer 2: number of segments is 2, expected 3",
       [](StoreDescription& d) { d.precisions[0].layers[1] = UngatedDescription().precisions[0].layers[1]; }},
      {"part of segment 0 is 0, expected 1", [](StoreDescription& d) { d.precisions[0].layers[0].segments.pop_back(); }},
      {"number of segments is 0, expected 2..3", [](StoreDescription& d) { d.precisions[0].layers[0].segments.clear(); }},
      {"\"norm\": offset", [](StoreDescription& d) { d.trunk[1].offset += 64; }},
      {"\"embed\" appears twice", [](StoreDescription& d) { d.trunk[1].name = "embed"; }},
      {"expected 1 row in f32", [](StoreDescription& d) { d.trunk[1].format = FormatId::kQ8; }},
      {"\"embed\" has 70 columns, expected a multiple of 256 in q4_k",
       [](StoreDescription& d) { d.trunk[0].format = FormatId::kQ4K; }},
      {"rows is 0", [](StoreDescription& d) { d.trunk[0].rows = 0; }},
      {"MoE layers is 0", [](StoreDescription& d) { d.moe_layers.clear(); }},
      {"precisions is 0", [](StoreDescription& d) { d.precisions.clear(); }},
      {"number of layouts is 1, expected 2", [](StoreDescription& d) { d.precisions[1].layers.pop_back(); }},
      {"trunk bytes", [](StoreDescription& d) { d.trunk_bytes = 0; }},
  };
  for (const auto& [expected, change] : cases) {
    StoreDescription description = SmallDescription();
    change(description);
    const absl::Status status = StoreWriter::Open(folder / "bad.store", description, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << expected;
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
    EXPECT_FALSE(Exists(folder / "bad.store.partial"));
  }
}

TEST(StoreWriterTest, AFullDiskIsAClearErrorThatLeavesNothingBehind) {
  MemoryFolder folder;
  const std::string path = folder / "full.store";
  const absl::Status status = [&] {
    const FileSizeLimit small(16384);
    return StoreWriter::Open(path, SmallDescription(), kSyncAlways).status();
  }();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("full.store.partial"), HasSubstr("bytes are needed")));
  EXPECT_FALSE(Exists(path + ".partial"));
  EXPECT_FALSE(StoreWriter::Open("/no/such/folder/x.store", SmallDescription(), {}).ok());
}

}  // namespace
}  // namespace moed
