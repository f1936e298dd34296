// `moe-bench systems` on the demo model through the real daemon: a tiny run, its tables, and the same command again.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
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
    for (const char* name : {"s.moed", "j.jsonl", "j.jsonl.learned", "out.json", "out.md", "log", "moed", "trace"}) {
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
      EXPECT_EQ(cell.at("quality").at("prompt_scored_tokens"), 31);
      EXPECT_GT(cell.at("quality").at("prompt_perplexity_ratio"), 0);
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

// Random routing of the demo model's shape, in two categories.
void WriteTrace(const std::string& folder) {
  constexpr size_t kTokens = 140, kLayers = 8, kTopK = 4, kExperts = 32;
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/shape.json") << R"({"layers": [0, 1, 2, 3, 4, 5, 6, 7], "top_k": 4, "experts": 32})";
  std::ofstream experts(folder + "/experts.u8", std::ios::binary), weights(folder + "/probs.u8", std::ios::binary);
  std::ofstream index(folder + "/index.jsonl");
  std::mt19937 random(1);
  for (size_t sequence = 0; sequence < 2; ++sequence) {
    nlohmann::json line{{"first", sequence * kTokens}, {"n", kTokens}, {"category", sequence == 0 ? "a" : "b"}};
    for (size_t token = 0; token < kTokens; ++token) line["token_ids"].push_back(token % 50);
    index << line.dump() << "\n";
    for (size_t i = 0; i < kTokens * kLayers; ++i) {
      const size_t first = random() % kExperts;
      for (size_t slot = 0; slot < kTopK; ++slot) experts.put(static_cast<char>((first + slot) % kExperts));
      weights << "\x64\x50\x32\x10";
    }
  }
}

TEST_F(SystemsCommandTest, RecordedRoutingIsPlayedOnABudget) {
  WriteTrace(Path("trace"));
  const std::string flags = "--recorded-routing " + Path("trace") + " --memory-budget 24MiB --seconds 1 --turns 1 --presets ";
  ASSERT_EQ(Systems(flags + "load-on-demand-lru,auto+learned,swapmoe-equal --learn-seconds 0.5 --json " + Path("out.json") +
                    " --markdown " + Path("out.md")),
            0)
      << Read(Path("log"));
  const auto json = nlohmann::json::parse(Read(Path("out.json")));
  ASSERT_EQ(json.at("cells").size(), 3u);
  for (const auto& cell : json.at("cells")) {
    if (cell.at("contender") == "swapmoe-equal") {
      EXPECT_THAT(cell.at("not_run").get<std::string>(), HasSubstr("router mask swapmoe asks for all logits"));
      continue;
    }
    const auto& median = cell.at("median");
    EXPECT_GT(median.at("decode_tokens_per_second"), 0);
    EXPECT_GT(median.at("disk_bytes_per_second"), 0);
    EXPECT_GT(median.at("bound_share"), 0);
    if (cell.at("contender") == "load-on-demand-lru") {
      EXPECT_LE(median.at("decode_hit_ratio"), median.at("belady_hit_ratio").get<double>() + 0.02);
    }
    EXPECT_FALSE(median.contains("prefill_tokens_per_second")) << "a prompt of one token";
    EXPECT_EQ(cell.at("quality"), "exact");
  }
  EXPECT_THAT(Read(Path("out.md")), HasSubstr("Belady's hits"));
}

TEST_F(SystemsCommandTest, WrongUseIsNamed) {
  EXPECT_EQ(Systems("--memory-budget 24MiB --quick"), 1);
  EXPECT_THAT(Read(Path("log")), HasSubstr("--memory-budget is one cell on the native disk"));
  EXPECT_EQ(Systems("--memory-budget much"), 1);
  EXPECT_THAT(Read(Path("log")), HasSubstr("--memory-budget"));
  EXPECT_EQ(Systems("--recorded-routing /nowhere/trace"), 1);
  EXPECT_THAT(Read(Path("log")), HasSubstr("/nowhere/trace: no such directory"));
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
