// moectl's commands, run as programs, against a server in this process that answers from a script.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "client/command.h"
#include "nlohmann/json.hpp"
#include "tests/paths.h"
#include "tests/server/server_harness.h"
#include "tests/store/small_store.h"

namespace moed {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

struct Outcome {
  int code = -1;
  std::string output;
  std::string errors;
};

class CommandsTest : public testing::Test {
 protected:
  CommandsTest() : server_(Options()) { server_.RunFreely(); }

  std::string File(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  // `arguments` as a shell takes them.
  Outcome Run(const std::string& arguments) { return RunAt(server_.server().address().Text(), arguments); }
  Outcome RunAt(const std::string& address, const std::string& arguments) const {
    const std::string output = folder_ / "output", errors = folder_ / "errors";
    const std::string command =
        BuiltProgram("moectl") + " --server " + address + " " + arguments + " >" + output + " 2>" + errors + " </dev/null";
    Outcome outcome;
    outcome.code = WEXITSTATUS(std::system(command.c_str()));
    outcome.output = Read(output);
    outcome.errors = Read(errors);
    return outcome;
  }
  json RunJson(const std::string& arguments) {
    const Outcome outcome = Run(arguments + " --json");
    EXPECT_EQ(outcome.code, kExitOk) << outcome.errors;
    return json::parse(outcome.output, nullptr, false);
  }

  EngineRequest last_request() {
    absl::MutexLock lock(&mutex_);
    return last_request_;
  }

 private:
  HarnessOptions Options() {
    HarnessOptions options;
    options.script = [this](const EngineRequest& request) {
      absl::MutexLock lock(&mutex_);
      last_request_ = request;
      return ScriptOfText("one two");
    };
    return options;
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  const TemporaryFolder folder_;
  absl::Mutex mutex_;
  EngineRequest last_request_ ABSL_GUARDED_BY(mutex_);

 protected:
  ServerHarness server_;  // last: its script uses all of the above
};

TEST_F(CommandsTest, GenerateStreamsTheAnswerAndSumsItUp) {
  const Outcome outcome = Run("generate --prompt 'Once upon'");
  EXPECT_EQ(outcome.code, kExitOk);
  EXPECT_EQ(outcome.output, "one two\n");
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("[stop]"), HasSubstr("+ 7 new tokens"), HasSubstr("exact")));
  EXPECT_EQ(Run("generate --prompt-file " + File("prompt", "Once upon")).output, "one two\n");
  EXPECT_EQ(Run("generate --token-ids 1,2,3").output, "one two\n");
}

TEST_F(CommandsTest, GenerateAsJsonHasAllOfIt) {
  const json answer = RunJson("generate --prompt 'Once upon' --max-new-tokens 3 --seed 17");
  EXPECT_EQ(answer.at("text"), "one");
  EXPECT_EQ(answer.at("token_ids"), (json{0, 1, 2}));
  EXPECT_EQ(answer.at("finish_reason"), "length");
  EXPECT_EQ(answer.at("seed"), 17);
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 3);
  EXPECT_FALSE(answer.contains("logprobs"));
  EXPECT_EQ(RunJson("generate --prompt x --logprobs 0").at("logprobs").size(), 7u);
}

TEST_F(CommandsTest, WhatAnswersAreAskedForArrives) {
  EXPECT_EQ(Run("generate --prompt x --temperature 0.5 --top-k 3 --top-p 0.5 --min-p 0.25 --stop END --stop-token-id 5 "
                "--logit-bias 7=-2.5 --session talk --request-id mine --fidelity bounded:0.25 --time-limit 9.5")
                .code,
            kExitOk);
  const EngineRequest asked = last_request();
  EXPECT_FLOAT_EQ(asked.sampling.temperature, 0.5);
  EXPECT_EQ(asked.sampling.top_k, 3);
  EXPECT_FLOAT_EQ(asked.sampling.top_p, 0.5);
  EXPECT_FLOAT_EQ(asked.sampling.min_p, 0.25);
  EXPECT_EQ(asked.stopping.stop_strings, (std::vector<std::string>{"END"}));
  EXPECT_EQ(asked.stopping.stop_tokens, (std::vector<TokenId>{TokenId(5)}));
  EXPECT_EQ(asked.stopping.time_limit_seconds, 9.5);
  EXPECT_EQ(asked.session_id, "talk");
  EXPECT_EQ(asked.name, "mine");
  EXPECT_EQ(asked.fidelity, Fidelity::Bounded(0.25f));
  ASSERT_EQ(asked.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(asked.sampling.logit_bias[0].first, TokenId(7));
  EXPECT_FLOAT_EQ(asked.sampling.logit_bias[0].second, -2.5);
}

TEST_F(CommandsTest, TokenizeGivesTheServersTokens) {
  const auto ids = TestTokenizer().Encode("Once upon a time", {});
  ASSERT_TRUE(ids.ok()) << ids.status();
  json expected = json::array();
  for (const TokenId id : *ids) expected.push_back(id.value());
  EXPECT_EQ(RunJson("tokenize --text 'Once upon a time'").at("token_ids"), expected);
  std::ostringstream words;
  for (const auto& id : expected) words << (words.tellp() > 0 ? " " : "") << id;
  EXPECT_EQ(Run("tokenize --file " + File("text", "Once upon a time")).output, words.str() + "\n");
}

TEST_F(CommandsTest, InfoSaysWhatTheServerIs) {
  const Outcome outcome = Run("info");
  EXPECT_EQ(outcome.code, kExitOk);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("moed 1.2.3"), HasSubstr("mixtral"), HasSubstr("4 layers"),
                                    HasSubstr("memory budget 5.9 KiB"), HasSubstr("reads by"), HasSubstr("no chat template")));
  const json info = RunJson("info");
  EXPECT_EQ(info.at("server").at("version"), "1.2.3");
  EXPECT_EQ(info.at("model").at("family"), "mixtral");
}

TEST_F(CommandsTest, StatsShowEveryLayer) {
  ASSERT_EQ(Run("generate --prompt x").code, kExitOk);
  const json stats = RunJson("stats");
  EXPECT_EQ(stats.at("stats").at("generated_tokens"), "7");
  EXPECT_EQ(stats.at("cache").at("layers").size(), TestExpertStats().layers.size());
  const Outcome table = Run("stats --count 1");
  EXPECT_THAT(table.output, AllOf(HasSubstr("generated 7"), HasSubstr("layer"), HasSubstr("hit ratio")));
  EXPECT_THAT(Run("stats --breakdown").output, AllOf(HasSubstr("prefill ms"), HasSubstr("other")));
}

TEST_F(CommandsTest, BenchCountsWhatWasAnswered) {
  const json report = RunJson("bench --requests 5 --concurrency 2 --max-new-tokens 4");
  EXPECT_EQ(report.at("ok"), 5);
  EXPECT_EQ(report.at("tokens"), 20);
  EXPECT_TRUE(report.at("errors").empty());
  EXPECT_GE(report.at("ttft_seconds").at("p99"), report.at("ttft_seconds").at("p50"));
  EXPECT_THAT(Run("bench --requests 2 --concurrency 1 --prompts " + File("prompts", "one\ntwo\n")).output, HasSubstr("TTFT"));
}

TEST_F(CommandsTest, SessionsAreContinuedListedAndDeleted) {
  EXPECT_EQ(Run("generate --prompt x --session s --must-exist").code, kExitInvalid);
  const json first = RunJson("generate --prompt x --session s --expected-tokens 0");
  const int held = first.at("session_tokens");
  EXPECT_EQ(Run("generate --prompt x --session s --expected-tokens 0").code, kExitFailed);
  RunJson("generate --prompt x --session s --must-exist --expected-tokens " + std::to_string(held));
  const json list = RunJson("session list");
  ASSERT_EQ(list.at("sessions").size(), 1u);
  EXPECT_EQ(list["sessions"][0]["session_id"], "s");
  EXPECT_THAT(Run("session list").output, HasSubstr("s  "));
  EXPECT_EQ(Run("session delete s").code, kExitOk);
  const Outcome gone = Run("session delete s");
  EXPECT_EQ(gone.code, kExitInvalid);
  EXPECT_THAT(gone.errors, HasSubstr("NOT_FOUND"));
  EXPECT_EQ(Run("session").code, kExitUsage);
}

TEST_F(CommandsTest, HealthFollowsTheServer) {
  EXPECT_EQ(Run("health").output, "serving\n");
  EXPECT_EQ(Run("health --service moe.v1.Inference").code, kExitOk);
  EXPECT_EQ(Run("health --service nobody").code, kExitInvalid);
  server_.server().SetServing(false);
  EXPECT_EQ(Run("health").code, kExitNoServer);
}

TEST_F(CommandsTest, ExitCodesSayWhatWentWrong) {
  const struct {
    const char* arguments;
    int code;
    const char* says;
  } kCases[] = {
      {"generate", kExitInvalid, "give one of --prompt, --prompt-file, --token-ids"},
      {"generate --prompt x --token-ids 1", kExitInvalid, "give one of"},
      {"generate --prompt-file /nowhere/text", kExitInvalid, "/nowhere/text"},
      {"generate --prompt x --temperature=-1", kExitInvalid, "sampling.temperature"},
      {"generate --prompt x --fidelity loose", kExitInvalid, "bounded:X"},
      {"generate --prompt x --logit-bias 7", kExitInvalid, "ID=BIAS"},
      {"score", kExitInvalid, "give one of --file, --text"},
      {"score --text x", kExitInvalid, "at least 2"},
      {"generate --propmt x", kExitUsage, "--prompt"},
      {"stats --window 600", kExitUsage, "--window"},
      {"", kExitUsage, "generate"},
  };
  for (const auto& test : kCases) {
    const Outcome outcome = Run(test.arguments);
    EXPECT_EQ(outcome.code, test.code) << test.arguments << ": " << outcome.errors;
    EXPECT_THAT(outcome.errors, HasSubstr(test.says)) << test.arguments;
  }
  EXPECT_EQ(RunAt("nonsense", "info").code, kExitUsage);
  server_.state().SetRefusing();
  EXPECT_EQ(Run("generate --prompt x").code, kExitNoServer);
}

}  // namespace
}  // namespace moed
