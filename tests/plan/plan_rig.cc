#include "tests/plan/plan_rig.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <system_error>
#include <thread>

#include "core/base/status.h"

namespace moed {

using ::testing::HasSubstr;

void PlanRig::Prepare(const TinyCheckpoint& checkpoint, const std::string& formats, int sentences) {
  checkpoint.Write(folder_ / "in");
  ASSERT_EQ(RunPack({folder_ / "in", store_, "--expert-formats", formats}).exit_code, 0);
  std::string text;
  for (int i = 0; i < sentences; ++i) text += StrCat("The ", i * 37 % 101, "th wolf of the ", i % 7, " woods said nothing. ");
  WriteContents(text_, text);
}

PlanRig::Arguments PlanRig::Plan(const std::string& command, const Arguments& more, int tokens) const {
  Arguments arguments = {command, store_, text_, "--tokens", std::to_string(tokens), "--window", "32", "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

void PlanRig::InterruptAndResume(const Arguments& arguments, uint64_t growth_bytes) {
  Arguments all = arguments;
  all.insert(all.end(), {"--out", whole()});
  const CommandResult made = RunProgram("moed-plan", all);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto journal_bytes = [journal = out_ + ".journal"] {
    std::error_code absent;
    const uintmax_t bytes = std::filesystem::file_size(journal, absent);
    return absent ? 0 : bytes;
  };
  int interrupted = 0;
  for (const int number : {SIGKILL, SIGINT, SIGTERM}) {
    const uintmax_t before = journal_bytes();
    Command command("moed-plan", arguments);
    while (command.Running() && journal_bytes() <= before + growth_bytes) std::this_thread::yield();
    command.Signal(number);
    const CommandResult result = command.Wait();
    if (result.exit_code == 0) break;
    ++interrupted;
    EXPECT_FALSE(std::filesystem::exists(out_));
    if (number != SIGKILL) {
      EXPECT_EQ(result.exit_code, 130);
      EXPECT_THAT(result.err, HasSubstr("run the same command again to resume"));
    }
  }
  ASSERT_GE(interrupted, 1);
  if (std::filesystem::exists(out_)) return;
  const CommandResult last = RunProgram("moed-plan", arguments);
  ASSERT_EQ(last.exit_code, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("resuming"));
}

bool PlanRig::InterruptOften(const Arguments& arguments) {
  bool kept = false;
  for (int yields = 2000; yields <= 64000 && !std::filesystem::exists(out_); yields *= 2) {
    Command command("moed-plan", arguments);
    for (int i = 0; i < yields && command.Running(); ++i) std::this_thread::yield();
    command.Signal(SIGINT);
    const CommandResult result = command.Wait();
    kept = kept || result.err.find("run the same command again to resume") != std::string::npos;
    EXPECT_EQ(result.exit_code == 0, std::filesystem::exists(out_));
    EXPECT_EQ(std::filesystem::exists(out_ + ".unfinished"), kept && result.exit_code != 0);
  }
  return kept;
}

}  // namespace moed
