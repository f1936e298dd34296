// moectl's commands, run as programs, against a server in this process that answers from a script.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "client/command.h"
#include "moe/v1/control.grpc.pb.h"
#include "nlohmann/json.hpp"
#include "tests/paths.h"
#include "tests/server/server_harness.h"
#include "tests/store/small_store.h"

namespace moed {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Outcome {
  int code = -1;
  std::string output;
  std::string errors;
};

class CommandsTest : public testing::Test {
 protected:
  const MemoryFolder folder_;

  CommandsTest() : server_(Options()) { server_.RunFreely(); }

  std::string File(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
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
  // What a terminal gets of it.
  std::string ShownBy(const std::string& arguments) { return ShownAt(server_.server().address().Text(), arguments); }
  static std::string ShownAt(const std::string& address, const std::string& arguments) {
    const std::string command = BuiltProgram("moectl") + " --server " + address + " " + arguments;
    int terminal = -1;
    const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    std::string shown;
    char piece[4096];
    for (ssize_t got = 0; (got = read(terminal, piece, sizeof(piece))) > 0;) shown.append(piece, static_cast<size_t>(got));
    close(terminal);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    return shown;
  }
  json RunJson(const std::string& arguments) {
    const Outcome outcome = Run(arguments + " --json");
    EXPECT_EQ(outcome.code, kExitOk) << outcome.errors;
    return json::parse(outcome.output, nullptr, false);
  }

  void AnswerWith(const std::string& text) {
    absl::MutexLock lock(&mutex_);
    answer_ = text;
  }
  void AnswerFromLossyTokens(int count) {
    absl::MutexLock lock(&mutex_);
    lossy_cached_tokens_ = count;
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
      Script script = ScriptOfText(answer_);
      script.finish.lossy_cached_tokens = lossy_cached_tokens_;
      return script;
    };
    return options;
  }
  absl::Mutex mutex_;
  EngineRequest last_request_ ABSL_GUARDED_BY(mutex_);
  std::string answer_ ABSL_GUARDED_BY(mutex_) = "one two";
  int lossy_cached_tokens_ ABSL_GUARDED_BY(mutex_) = 0;

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

TEST_F(CommandsTest, WhatGoesOnFromALossIsNotCalledExact) {
  AnswerFromLossyTokens(5);
  const Outcome outcome = Run("generate --prompt 'Once upon'");
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("5 cached tokens that had lost something"), Not(HasSubstr("exact"))));
  EXPECT_EQ(RunJson("generate --prompt 'Once upon'").at("stats").at("lossy_cached_tokens"), 5);
}

TEST_F(CommandsTest, GenerateAsJsonHasAllOfIt) {
  const json answer = RunJson("generate --prompt 'Once upon' --max-new-tokens 3 --seed 17");
  EXPECT_EQ(answer.at("text"), "one");
  EXPECT_EQ(answer.at("token_ids"), (json{0, 1, 2}));
  EXPECT_EQ(answer.at("finish_reason"), "length");
  EXPECT_EQ(answer.at("seed"), 17);
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 3);
  EXPECT_FALSE(answer.contains("logprobs"));
  const json logprobs = RunJson("generate --prompt x --logprobs 0").at("logprobs");
  ASSERT_EQ(logprobs.size(), 7u);
  EXPECT_EQ(logprobs[0].at("top"), json::array());
  EXPECT_EQ(RunJson("generate --prompt x --seed 18446744073709551615").at("seed"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(RunJson("generate --prompt x --seed 010").at("seed"), 10);
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
  EXPECT_THAT(table.output, AllOf(HasSubstr("generated 7"), HasSubstr("layer"), HasSubstr("hit ratio"),
                                  HasSubstr("at most budget 5.9 KiB + 64.0 MiB")));
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

TEST_F(CommandsTest, BenchEndsInAWayOfItsOwnWhereSomeRequestsFailed) {
  const Outcome outcome = Run("bench --requests 5 --json --prompts " + File("prompts", "one\n" + std::string(500, 'x') + "\n"));
  EXPECT_EQ(outcome.code, kExitPartly);
  EXPECT_EQ(outcome.errors, "moectl: 2 of 5 requests failed\n");
  EXPECT_EQ(json::parse(outcome.output).at("ok"), 3);
  EXPECT_EQ(Run("bench --requests 2 --prompt " + std::string(500, 'x')).code, kExitInvalid) << "none was answered";
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

// Escape sequences, a line's end, what ends a C string, and the one-byte CSI of terminals.
constexpr std::string_view kHostile("a\0b\x1b[2J\nc\xc2\x9b\x7f\xc3\xa9", 14);

class HostileControl final : public moe::v1::Control::Service {
  grpc::Status ListSessions(grpc::ServerContext*, const moe::v1::ListSessionsRequest*,
                            moe::v1::ListSessionsResponse* answer) override {
    answer->add_sessions()->set_session_id(std::string(kHostile));
    return grpc::Status::OK;
  }
  grpc::Status GetStats(grpc::ServerContext*, const moe::v1::GetStatsRequest*, moe::v1::Stats* stats) override {
    stats->add_tenants()->set_name(std::string(kHostile));
    return grpc::Status::OK;
  }
  grpc::Status Drain(grpc::ServerContext*, const moe::v1::DrainRequest*, moe::v1::DrainResponse*) override {
    return grpc::Status(grpc::StatusCode::INTERNAL, "no\xff\x1b[2J\nmore");
  }
};

TEST_F(CommandsTest, WhatServersSayDoesNotSteerATerminal) {
  HostileControl control;
  const std::string address = "unix:" + folder_ / "hostile";
  const auto server = grpc::ServerBuilder()
                          .AddListeningPort(address, grpc::InsecureServerCredentials())
                          .RegisterService(&control)
                          .BuildAndStart();
  ASSERT_NE(server, nullptr);
  const std::string escaped = "a\\x00b\\x1b[2J\\x0ac\\u009b\\x7f\xc3\xa9", exact(kHostile);
  EXPECT_THAT(ShownAt(address, "session list"), StartsWith(escaped + "  "));
  EXPECT_THAT(RunAt(address, "session list").output, StartsWith(exact + "  "));
  EXPECT_EQ(json::parse(RunAt(address, "session list --json").output)["sessions"][0]["session_id"], exact);
  EXPECT_THAT(ShownAt(address, "tenants"), HasSubstr("\n" + escaped + " "));
  EXPECT_THAT(RunAt(address, "tenants").output, HasSubstr("\n" + exact + " "));
  EXPECT_EQ(json::parse(RunAt(address, "tenants --json").output)["tenants"][0]["name"], exact);
  EXPECT_EQ(ShownAt(address, "drain"), "moectl: INTERNAL: no\xef\xbf\xbd\\x1b[2J\r\nmore\r\n");
  EXPECT_EQ(RunAt(address, "drain").errors, "moectl: INTERNAL: no\xff\x1b[2J\nmore\n");
}

class AbortingControl final : public moe::v1::Control::Service {
 public:
  std::string aborted;

 private:
  grpc::Status Abort(grpc::ServerContext*, const moe::v1::AbortRequest* request, moe::v1::AbortResponse*) override {
    aborted = request->request_id();
    return grpc::Status::OK;
  }
};

TEST_F(CommandsTest, AbortNamesTheRequest) {
  AbortingControl control;
  const std::string address = "unix:" + folder_ / "aborting";
  const auto server = grpc::ServerBuilder()
                          .AddListeningPort(address, grpc::InsecureServerCredentials())
                          .RegisterService(&control)
                          .BuildAndStart();
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(RunAt(address, "abort alice/mine").code, kExitOk);
  EXPECT_EQ(control.aborted, "alice/mine");
  const Outcome unknown = Run("abort nobody");
  EXPECT_EQ(unknown.code, kExitInvalid);
  EXPECT_THAT(unknown.errors, HasSubstr("nobody"));
}

TEST_F(CommandsTest, WhereControlIsElsewhereIsTold) {
  const std::string address = "unix:" + folder_ / "without";
  grpc::EnableDefaultHealthCheckService(true);
  const auto server = grpc::ServerBuilder().AddListeningPort(address, grpc::InsecureServerCredentials()).BuildAndStart();
  ASSERT_NE(server, nullptr);
  for (const char* arguments : {"info", "stats", "drain"}) {
    const Outcome outcome = RunAt(address, arguments);
    EXPECT_EQ(outcome.code, kExitFailed);
    EXPECT_THAT(outcome.errors, AllOf(StartsWith("moectl: UNIMPLEMENTED: "), HasSubstr("--control-listen"))) << arguments;
  }
}

TEST_F(CommandsTest, WhatStandardOutputDoesNotTakeIsAFailure) {
  const std::string program = BuiltProgram("moectl") + " --server " + server_.server().address().Text() + " ";
  const std::string errors = folder_ / "errors";
  for (const char* arguments : {"info", "generate --prompt x", "generate --prompt x --json", "token new a infer", "--help"}) {
    const std::string command = program + arguments + " >/dev/full 2>" + errors;
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), kExitFailed) << arguments;
    EXPECT_THAT(Read(errors), HasSubstr("moectl: standard output is not whole: ")) << arguments;
  }
}

TEST_F(CommandsTest, AnswersDoNotSteerATerminal) {
  const std::string answer =
      "one\ttwo\n\x1b]0;mine\a\xc2\x9b"
      "1mthree \xc3\xa9";
  AnswerWith(answer);
  const std::string shown = ShownBy("generate --prompt x");
  EXPECT_THAT(shown, AllOf(HasSubstr("two\r\n\\x1b]0;mine\\x07\\u009b1mthree \xc3\xa9"), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(Run("generate --prompt x").output, answer + "\n");
  EXPECT_EQ(RunJson("generate --prompt x").at("text"), answer);
}

TEST_F(CommandsTest, ErrorsDoNotSteerATerminal) {
  const std::string command = "log-level '\x1b[2J'";
  EXPECT_THAT(ShownBy(command), AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("\\x1b[2J"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(Run(command).errors, HasSubstr("\x1b[2J"));
}

TEST_F(CommandsTest, NobodyIsAnEmptyList) {
  EXPECT_EQ(Run("tenants --json").output, "{\"tenants\":[]}\n");
  EXPECT_EQ(RunJson("session list"), (json{{"sessions", json::array()}, {"total", 0}}));
}

TEST_F(CommandsTest, HelpSaysWhatValuesMayBe) {
  EXPECT_THAT(Run("stats --help").output, HasSubstr("--window X (1 to 60; default 10)"));
  EXPECT_THAT(Run("generate --help").output,
              AllOf(HasSubstr("--priority TEXT (high, normal, low)"), HasSubstr("--logprobs N (0 to 20)"),
                    HasSubstr("default 0, at most --max-new-tokens")));
  EXPECT_THAT(Run("--help").output, HasSubstr("(default 127.0.0.1:50051; or the variable MOECTL_SERVER)"));
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
      {"generate", kExitUsage, "give one of --prompt, --prompt-file, --token-ids"},
      {"generate --prompt x --token-ids 1", kExitUsage, "give one of"},
      {"generate --prompt-file /nowhere/text", kExitUsage, "/nowhere/text"},
      {"generate --prompt-file /", kExitUsage, "'/': it is a folder"},
      {"generate --prompt x --temperature=-1", kExitInvalid, "sampling.temperature"},
      {"generate --prompt x --fidelity loose", kExitUsage, "bounded:X"},
      {"generate --prompt x --logit-bias 7", kExitUsage, "ID=BIAS"},
      {"generate --prompt x --logit-bias 7=", kExitUsage, "ID=BIAS"},
      {"generate --prompt x --logit-bias 7=1 --logit-bias 7=2", kExitUsage, "'7=2': the token stands twice"},
      {"generate --prompt x --stop \xff", kExitInvalid, "stop_strings is not UTF-8: byte 0 starts no valid character"},
      {"generate --prompt x --seed 18446744073709551616", kExitUsage, "whole number from 0 to 18446744073709551615"},
      {"generate --prompt x --seed -1", kExitUsage, "'-1' is no whole number"},
      {"generate --prompt x --seed 1 --seed 1", kExitUsage, "--seed is given 2 times"},
      {"generate --prompt x --seed", kExitUsage, "--seed: its value is missing"},
      {"generate --prompt x --top-k -3", kExitUsage, "'-3' is no whole number from 0 to 2147483647"},
      {"generate --prompt x --temperature warm", kExitUsage, "'warm' is no number"},
      {"generate --prompt x --priority huge", kExitUsage, "'huge' is none of high, normal, low"},
      {"score", kExitUsage, "give one of --file, --text"},
      {"score --text x", kExitInvalid, "at least 2"},
      {"generate --propmt x", kExitUsage, "--prompt"},
      {"stats --window 600", kExitUsage, "--window: '600' is no number from 1 to 60"},
      {"stats --count 0", kExitUsage, "'0' is no whole number from 1 to 2147483647"},
      {"--deadline 0 info", kExitUsage, "'0' is no number above 0 up to 1e9"},
      {"--deadline 1e300 info", kExitUsage, "'1e300' is no number above 0"},
      {"resize foo", kExitUsage, "foo"},
      {"load --memory-budget foo", kExitUsage, "--memory-budget"},
      {"pin a", kExitUsage, "LAYER:EXPERT"},
      {"log-level loud", kExitInvalid, "loud"},
      {"token new 'a b' infer", kExitUsage, "letters"},
      {"token new a all", kExitUsage, "infer"},
      {"chat --prompt x --plain --system y", kExitUsage, "--system"},
      {"bogus", kExitUsage, "unknown command 'bogus'; commands are generate, chat"},
      {"--bogus", kExitUsage, "unknown flag --bogus; commands are generate, chat"},
      {"generate --bogus", kExitUsage, "--json, --json-schema, --regex, --json-object\n"},
      {"session bogus", kExitUsage, "unknown command 'bogus'; commands are list, delete"},
      {"session", kExitUsage, "a command is missing; commands are list, delete"},
      {"abort", kExitUsage, "id is required"},
      {"", kExitUsage, "generate"},
  };
  for (const auto& test : kCases) {
    const Outcome outcome = Run(test.arguments);
    EXPECT_EQ(outcome.code, test.code) << test.arguments << ": " << outcome.errors;
    EXPECT_THAT(outcome.errors, HasSubstr(test.says)) << test.arguments;
  }
  EXPECT_EQ(RunAt("nonsense", "info").code, kExitUsage);
  EXPECT_EQ(Run("session delete \xff").errors,
            "moectl: INVALID_ARGUMENT: session_id is not UTF-8: byte 0 starts no valid character\n");
  EXPECT_EQ(Run("session delete ''").errors,
            "moectl: INVALID_ARGUMENT: invalid request: session_id: empty: name the conversation to forget\n");
  server_.state().SetRefusing();
  EXPECT_EQ(Run("generate --prompt x").code, kExitNoServer);
}

TEST_F(CommandsTest, ExitCodesSayWhetherWaitingHelps) {
  const Outcome too_large = Run("generate --prompt-file " + File("long", std::string(5 << 20, 'x')));
  EXPECT_EQ(too_large.code, kExitInvalid) << too_large.errors;
  EXPECT_THAT(too_large.errors, HasSubstr("RESOURCE_EXHAUSTED"));
  ServerHarness full;  // it computes nothing
  std::vector<std::unique_ptr<OpenStream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(std::make_unique<OpenStream>(full, TextRequest("x")));
  const Outcome busy = RunAt(full.server().address().Text(), "generate --prompt x");
  EXPECT_EQ(busy.code, kExitBusy) << busy.errors;
  EXPECT_THAT(busy.errors, HasSubstr("retry after"));
  full.RunFreely();
}

TEST_F(CommandsTest, FlagsAndFilesAreCheckedBeforeAServerIsLookedFor) {
  const struct {
    const char* arguments;
    const char* says;
  } kCases[] = {
      {"generate", "give one of --prompt, --prompt-file, --token-ids"},
      {"generate --prompt-file /nowhere/text", "/nowhere/text"},
      {"generate --prompt x --json-schema /nowhere/schema", "/nowhere/schema"},
      {"generate --prompt x --logit-bias 7", "ID=BIAS"},
      {"chat --fidelity loose", "bounded:X"},
      {"chat --prompt-file /nowhere/text", "/nowhere/text"},
      {"bench --prompts /nowhere/prompts", "/nowhere/prompts"},
      {"score", "give one of --file, --text"},
      {"score --text x --source-file /nowhere/source", "/nowhere/source"},
      {"tokenize --file /nowhere/text", "/nowhere/text"},
  };
  for (const auto& test : kCases) {
    const Outcome outcome = RunAt("unix:" + folder_ / "nobody", test.arguments);
    EXPECT_EQ(outcome.code, kExitUsage) << test.arguments;
    EXPECT_THAT(outcome.errors, HasSubstr(test.says)) << test.arguments;
  }
  EXPECT_EQ(RunAt("unix:" + folder_ / "nobody", "--connect-timeout 0.05 generate --prompt x").code, kExitNoServer);
}

}  // namespace
}  // namespace moed
