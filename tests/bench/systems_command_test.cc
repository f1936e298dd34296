// `moe-bench systems` on the demo model through the real daemon: a tiny run, its tables, and the same command again.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/paths.h"

namespace moed {
namespace {

using testing::HasSubstr;

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class SystemsCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(
        Shell(BuiltProgram("moed-pack") + " " + SourcePath("models/tales-qwen") + " " + Path("s.moed") + " --expert-formats q4"),
        0);
  }
  void TearDown() override {
    for (const char* name : {"s.moed", "j.jsonl", "j.jsonl.learned", "out.json", "out.md", "log", "moed"}) {
      std::filesystem::remove_all(Path(name));
    }
  }
  static std::string Path(const std::string& name) {
    return testing::TempDir() + "/systems_command_" + std::to_string(getpid()) + "_" + name;
  }
  static int Shell(const std::string& command) {
    return WEXITSTATUS(std::system((command + " > " + Path("log") + " 2>&1").c_str()));
  }
  static int Systems(const std::string& flags) {
    return Shell("cd " + SourcePath("") + " && " + BuiltProgram("moe-bench") + " systems --store " + Path("s.moed") +
                 " --journal " + Path("j.jsonl") + " " + flags);
  }
};

TEST_F(SystemsCommandTest, MeasuresReportsAndGoesOn) {
  const std::string flags =
      "--quick --seconds 0.5 --quality-tokens 32 --presets "
      "load-on-demand-lru,load-on-demand,hobbit,auto+learned,auto@bounded:0.5 "
      "--learn-seconds 0.5 --json " +
      Path("out.json") + " --markdown " + Path("out.md");
  ASSERT_EQ(Systems(flags), 0) << Read(Path("log"));
  const auto json = nlohmann::json::parse(Read(Path("out.json")));
  ASSERT_EQ(json.at("cells").size(), 10u);
  for (const auto& cell : json.at("cells")) {
    if (cell.at("contender") == "hobbit") {
      EXPECT_THAT(cell.at("not_run").get<std::string>(), HasSubstr("moed-pack")) << "one precision is not enough";
      continue;
    }
    const auto& median = cell.at("median");
    EXPECT_GT(median.at("decode_tokens_per_second"), 0);
    EXPECT_GT(median.at("prefill_tokens_per_second"), 0);
    EXPECT_GT(median.at("bytes_per_token"), 0);
    const bool exact = cell.at("contender") != "auto@bounded:0.5";
    EXPECT_EQ(median.at("exact"), exact ? 1 : 0);
    if (cell.at("contender") == "load-on-demand-lru") {
      EXPECT_NEAR(median.at("cache_share"), 0.25, 0.03);
      EXPECT_GT(median.at("decode_hit_ratio"), 0);
    }
    if (exact) {
      EXPECT_EQ(cell.at("quality"), "exact") << "what nobody measured is no figure";
    } else {
      EXPECT_EQ(cell.at("quality").at("scored_tokens"), 31);
      EXPECT_GT(cell.at("quality").at("perplexity"), 1);
      EXPECT_GT(cell.at("quality").at("exact_perplexity"), 1);
      EXPECT_GT(cell.at("quality").at("kl"), 0) << "half of the gate mass may be lost, and is at a quarter of the cache";
    }
  }
  EXPECT_THAT(Read(Path("out.md")), HasSubstr("- hobbit: not run:"));
  EXPECT_FALSE(Read(Path("j.jsonl.learned/auto+learned-25.state")).empty());

  const std::string journal = Read(Path("j.jsonl"));
  ASSERT_EQ(Systems(flags), 0) << Read(Path("log"));
  EXPECT_EQ(Read(Path("j.jsonl")), journal) << "everything had been measured";
  EXPECT_EQ(Systems(flags + " --moed-flags --threads=1"), 1);
  EXPECT_THAT(Read(Path("log")), HasSubstr("belongs to another run: moed_flags is \"\" there and \"--threads=1\" here"));
  const std::string rebuilt = Path("moed");
  std::filesystem::copy_file(BuiltProgram("moed"), rebuilt);
  std::ofstream(rebuilt, std::ios::app | std::ios::binary) << "another build of the same version";
  EXPECT_EQ(Systems(flags + " --moed " + rebuilt), 1);
  EXPECT_THAT(Read(Path("log")), testing::ContainsRegex("belongs to another run: moed is \"[0-9a-f]{16}\" there and"));
}

TEST_F(SystemsCommandTest, WrongUseIsNamed) {
  EXPECT_EQ(Systems("--presets nobody"), 1);
  EXPECT_THAT(Read(Path("log")), HasSubstr("unknown preset \"nobody\""));
  EXPECT_EQ(Systems("--moed /nowhere/moed"), 1);
  EXPECT_THAT(Read(Path("log")), HasSubstr("/nowhere/moed: no program to run"));
  EXPECT_EQ(Systems("--shares 33"), 1);
  EXPECT_THAT(Read(Path("log")), HasSubstr("known are 10, 25, 50, 75, 100"));
  EXPECT_EQ(Systems("--disks tape"), 1);
  EXPECT_THAT(Read(Path("log")), HasSubstr("known are native, 550, 90"));
  EXPECT_EQ(Systems("--presets auto --options widths=FILE"), 1);
  EXPECT_THAT(Read(Path("log")), HasSubstr("no contender knows the option \"widths\""));
  EXPECT_EQ(Systems("--prompts /nowhere/text"), 1);
  EXPECT_THAT(Read(Path("log")), HasSubstr("/nowhere/text"));
}

}  // namespace
}  // namespace moed
