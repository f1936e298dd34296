// A pack that is killed, interrupted or finds other inputs: what it leaves behind and how the next run goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <random>
#include <thread>
#include <utility>

#include "core/store/store.h"
#include "tests/pack/command.h"
#include "tests/pack/tiny_checkpoint.h"

namespace moed {
namespace kill_test {

using ::testing::HasSubstr;

class KillTest : public ::testing::Test {
 protected:
  // `coded`: as --coded=N wants it; empty: not.
  std::vector<std::string> Arguments(const std::string& in, const std::string& out, const std::string& coded = "") const {
    std::vector<std::string> arguments = {in, out, "--expert-formats", "bf16,q4", "--sync-mib", "1"};
    if (!coded.empty()) arguments.push_back("--coded=" + coded);
    return arguments;
  }
  uint64_t JournalBytes() const {
    std::error_code absent;
    const uintmax_t bytes = std::filesystem::file_size(out_ + ".partial.journal", absent);
    return absent ? 0 : bytes;
  }
  // Until the journal has more than `bytes` or the command has ended.
  void WaitForJournal(Command& command, uint64_t bytes) const {
    while (command.Running() && JournalBytes() <= bytes) std::this_thread::yield();
  }
  void ExpectTheSameBytesHoweverOftenItIsKilled(const std::string& coded);
  void ExpectNoStore() const {
    EXPECT_FALSE(std::filesystem::exists(out_));
    const absl::Status partial = StoreReader::Open(out_ + ".partial").status();
    EXPECT_FALSE(partial.ok());
  }

  TemporaryFolder folder_;
  const std::string out_ = folder_ / "out.store";
};

void KillTest::ExpectTheSameBytesHoweverOftenItIsKilled(const std::string& coded) {
  const std::string whole = folder_ / "whole.store";
  ASSERT_EQ(RunPack(Arguments(DemoCheckpoint(), whole, coded)).exit_code, 0);
  const auto description = StoreReader::Open(whole);
  ASSERT_TRUE(description.ok()) << description.status();
  ASSERT_EQ((*description)->description().coded(), !coded.empty());
  std::mt19937 random(11);
  int resumed = 0, killed = 0;
  for (int round = 0; round < 12; ++round) {
    Command command("moed-pack", Arguments(DemoCheckpoint(), out_, coded));
    WaitForJournal(command, JournalBytes() + random() % 3000);
    command.Signal(SIGKILL);
    const CommandResult result = command.Wait();
    resumed += result.err.find("resuming") != std::string::npos;
    if (result.exit_code == 0) break;
    ++killed;
    ExpectNoStore();
  }
  EXPECT_GE(killed, 1);
  if (!std::filesystem::exists(out_)) {
    const CommandResult last = RunPack(Arguments(DemoCheckpoint(), out_, coded));
    ASSERT_EQ(last.exit_code, 0) << last.err;
    resumed += last.err.find("resuming") != std::string::npos;
  }
  EXPECT_GE(resumed, 1);
  EXPECT_TRUE(FileContents(out_) == FileContents(whole));
  EXPECT_FALSE(std::filesystem::exists(out_ + ".partial"));
  EXPECT_FALSE(std::filesystem::exists(out_ + ".partial.journal"));
  EXPECT_EQ(RunPack({"verify", out_}).exit_code, 0);
}

TEST_F(KillTest, KilledAgainAndAgainItArrivesAtTheSameBytes) { ExpectTheSameBytesHoweverOftenItIsKilled(""); }
TEST_F(KillTest, SoItDoesWhereRecordsAreCoded) { ExpectTheSameBytesHoweverOftenItIsKilled("4"); }

TEST_F(KillTest, AnInterruptSaysHowToGoOn) {
  for (const int number : {SIGINT, SIGTERM}) {
    std::filesystem::remove(out_);
    Command command("moed-pack", Arguments(DemoCheckpoint(), out_));
    WaitForJournal(command, 500);
    command.Signal(number);
    const CommandResult result = command.Wait();
    ASSERT_EQ(result.exit_code, 130) << result.err;
    EXPECT_THAT(result.err, HasSubstr("run the same command again to resume"));
    ExpectNoStore();
    const CommandResult again = RunPack(Arguments(DemoCheckpoint(), out_));
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_THAT(again.err, HasSubstr("resuming"));
    EXPECT_EQ(RunPack({"verify", out_}).exit_code, 0);
  }
}

TEST_F(KillTest, OtherWeightsFormatsOrCodingStartOver) {
  const std::string in = folder_ / "in";
  std::filesystem::create_directory(in);
  for (const std::string name : {"config.json", "tokenizer.json", "model.safetensors"}) {
    std::filesystem::copy_file(DemoCheckpoint() + "/" + name, in + "/" + name);
  }
  const auto interrupt = [&](const std::string& coded = "") {
    std::filesystem::remove(out_);
    Command command("moed-pack", Arguments(in, out_, coded));
    WaitForJournal(command, 500);
    command.Signal(SIGKILL);
    EXPECT_NE(command.Wait().exit_code, 0);
  };
  interrupt();
  std::filesystem::last_write_time(in + "/model.safetensors",
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  const CommandResult touched = RunPack(Arguments(in, out_));
  EXPECT_EQ(touched.exit_code, 0);
  EXPECT_THAT(touched.err, HasSubstr("starting over"));

  interrupt();
  const CommandResult other_format = RunPack({in, out_, "--expert-formats", "q4"});
  EXPECT_EQ(other_format.exit_code, 0);
  EXPECT_THAT(other_format.err, HasSubstr("starting over"));
  EXPECT_EQ(RunPack({"verify", out_}).exit_code, 0);

  for (const auto& [before, after] : {std::pair("", "8"), {"8", "4"}, {"4", ""}}) {
    interrupt(before);
    const CommandResult other_coding = RunPack(Arguments(in, out_, after));
    EXPECT_EQ(other_coding.exit_code, 0);
    EXPECT_THAT(other_coding.err, HasSubstr("starting over")) << before << " " << after;
  }
}

}  // namespace kill_test
}  // namespace moed
