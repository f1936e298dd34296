// Flags, environment, file; addresses; the default of the memory budget.
#include "server/startup/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/ascii.h"
#include "core/base/status.h"
#include "core/expert/policies/table.h"
#include "core/expert/predictors/table.h"
#include "core/expert/presets/preset.h"
#include "core/io/read_backend.h"
#include "core/kernels/backend.h"
#include "core/model/family.h"
#include "core/quant/format.h"
#include "server/commands/run_budget.h"
#include "server/startup/default_budget.h"
#include "server/startup/device_budget.h"
#include "server/wire/stray_variables.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Variables = std::map<std::string, std::string>;

class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "moed-config-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string File(const std::string& name, const std::string& text) {
    const std::filesystem::path path = directory_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }
  static absl::StatusOr<ConfigOutcome> Read(std::vector<std::string> arguments, Variables variables = {}) {
    return ReadConfig(arguments, [&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  }
  static std::string Error(std::vector<std::string> arguments, Variables variables = {}) {
    const auto outcome = Read(std::move(arguments), std::move(variables));
    EXPECT_FALSE(outcome.ok());
    EXPECT_TRUE(absl::IsInvalidArgument(outcome.status()));
    return outcome.ok() ? "" : std::string(outcome.status().message().data(), outcome.status().message().size());
  }

  std::filesystem::path directory_;
};

TEST_F(ConfigTest, DefaultsAreSafe) {
  const auto outcome = Read({"--store", "a.moed"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const Config& config = outcome->config;
  EXPECT_EQ(config.store, "a.moed");
  EXPECT_FALSE(config.memory_budget.has_value());
  EXPECT_EQ(config.listen.Text(), "127.0.0.1:50051");
  EXPECT_EQ(config.metrics_listen->Text(), "127.0.0.1:9464");
  EXPECT_FALSE(config.control_listen.has_value());
  EXPECT_GE(config.serving.threads, 1);
}

TEST_F(ConfigTest, FlagBeforeEnvironmentBeforeFileBeforeDefault) {
  const std::string file = File("moed.toml",
                                "# a comment\n"
                                "store = \"from file.moed\"\n"
                                "max-running = 3\n"
                                "policy = \"lfu\"\n"
                                "threads = 3\n"
                                "metrics-listen = \"off\"\n");
  const auto outcome = Read({"--config", file, "--threads", "1"}, {{"MOED_THREADS", "2"}, {"MOED_MAX_RUNNING", "2"}});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->config.serving.threads, 1) << "flag";
  EXPECT_EQ(outcome->config.serving.max_running, 2) << "environment";
  EXPECT_EQ(outcome->config.preset.policy, "lfu") << "file";
  EXPECT_EQ(outcome->config.store, "from file.moed");
  EXPECT_FALSE(outcome->config.metrics_listen.has_value());
  EXPECT_EQ(outcome->config.io_queue_depth, 8) << "default";
  const auto by_variable = Read({}, {{"MOED_CONFIG", file}});
  ASSERT_TRUE(by_variable.ok()) << by_variable.status();
  EXPECT_EQ(by_variable->config.serving.threads, 3);
}

constexpr OptionRow kOption = {.name = "hobbit-t1", .initial = "0", .high = 1};

// A value that is not the default, and what it makes of the configuration.
struct Taken {
  std::string_view value;
  bool (*in)(const Config& config);
};
const std::map<std::string_view, Taken> kTaken = {
    {"store", {"x", [](const Config& c) { return c.store == "x"; }}},
    {"memory-budget", {"8MiB", [](const Config& c) { return c.memory_budget == 8u << 20; }}},
    {"max-memory-budget", {"9MiB", [](const Config& c) { return c.max_memory_budget == 9u << 20; }}},
    {"device-budget", {"3MiB", [](const Config& c) { return c.device_budget == 3u << 20; }}},
    {"device-lost", {"exit", [](const Config& c) { return c.device_lost == DeviceLost::kExit; }}},
    {"models-folder", {"/m", [](const Config& c) { return c.models_folder == "/m"; }}},
    {"fast-matmul", {"on", [](const Config& c) { return c.serving.fast_matmul; }}},
    {"kv-budget", {"1MiB", [](const Config& c) { return c.serving.kv_budget == 1u << 20; }}},
    {"kv-spill", {"/k", [](const Config& c) { return c.kv_spill == "/k"; }}},
    {"kv-spill-budget", {"1MiB", [](const Config& c) { return c.serving.kv_spill_budget == 1u << 20; }}},
    {"kv-format", {"f32", [](const Config& c) { return c.serving.kv_format == KvFormat::kF32; }}},
    {"embedding", {"disk", [](const Config& c) { return c.serving.embedding == EmbeddingPlace::kStore; }}},
    {"prefix-cache", {"off", [](const Config& c) { return !c.serving.prefix_cache; }}},
    {"prompt-lookup", {"off", [](const Config& c) { return !c.serving.prompt_lookup; }}},
    {"max-context", {"128", [](const Config& c) { return c.serving.max_context == 128; }}},
    {"preset", {"hobbit", [](const Config& c) { return c.preset.preset == "hobbit"; }}},
    {"policy", {"lfu", [](const Config& c) { return c.preset.policy == "lfu"; }}},
    {"predictor", {"none", [](const Config& c) { return c.preset.predictor == "none"; }}},
    {"fidelity-rule", {"priced", [](const Config& c) { return c.preset.rule == "priced"; }}},
    {"fill-cache", {"off", [](const Config& c) { return c.preset.fill == false; }}},
    {"preset-options", {"hobbit-t1=0.5", [](const Config& c) { return c.preset.options.Number(kOption).value() == 0.5; }}},
    {"listen", {"[::1]:1", [](const Config& c) { return c.listen.Text() == "[::1]:1"; }}},
    {"control-listen",
     {"a:2", [](const Config& c) { return c.control_listen.has_value() && c.control_listen->Text() == "a:2"; }}},
    {"metrics-listen",
     {"a:3", [](const Config& c) { return c.metrics_listen.has_value() && c.metrics_listen->Text() == "a:3"; }}},
    {"tls-cert", {"c.pem", [](const Config& c) { return c.access.tls.certificate == "c.pem"; }}},
    {"tls-key", {"k.pem", [](const Config& c) { return c.access.tls.key == "k.pem"; }}},
    {"tls-client-ca", {"a.pem", [](const Config& c) { return c.access.tls.client_ca == "a.pem"; }}},
    {"tokens", {"t", [](const Config& c) { return c.access.tokens == "t"; }}},
    {"insecure", {"on", [](const Config& c) { return c.insecure; }}},
    {"sandbox", {"require", [](const Config& c) { return c.sandbox == SandboxRule::kRequire; }}},
    {"max-calls-per-token", {"4", [](const Config& c) { return c.max_calls_per_token == 4; }}},
    {"processor-experts", {"off", [](const Config& c) { return !c.processor_experts; }}},
    {"reflection", {"on", [](const Config& c) { return c.reflection; }}},
    {"max-streams", {"5", [](const Config& c) { return c.max_streams == 5; }}},
    {"connection-idle-seconds", {"6", [](const Config& c) { return c.connection_idle_seconds == 6; }}},
    {"connection-age-seconds", {"7", [](const Config& c) { return c.connection_age_seconds == 7; }}},
    {"io-backend", {"buffered", [](const Config& c) { return c.io_backend == "buffered"; }}},
    {"io-queue-depth", {"4", [](const Config& c) { return c.io_queue_depth == 4; }}},
    {"verify-reads", {"always", [](const Config& c) { return c.checksums == ChecksumRule::kEveryRead; }}},
    {"read-rate", {"550MB", [](const Config& c) { return c.read_rate == 550'000'000u; }}},
    {"backend", {"scalar", [](const Config& c) { return c.backend == "scalar"; }}},
    {"threads", {"77", [](const Config& c) { return c.serving.threads == 77; }}},
    {"max-running", {"4", [](const Config& c) { return c.serving.max_running == 4; }}},
    {"queue-capacity", {"5", [](const Config& c) { return c.serving.queue_capacity == 5; }}},
    {"prefill-chunk", {"32", [](const Config& c) { return c.serving.prefill_chunk == 32; }}},
    {"max-kept-sessions", {"6", [](const Config& c) { return c.serving.max_kept_sessions == 6; }}},
    {"max-new-tokens", {"9", [](const Config& c) { return c.serving.max_new_tokens == 9; }}},
    {"max-request-seconds", {"90", [](const Config& c) { return c.serving.max_request_seconds == 90; }}},
    {"max-text-bytes", {"2MiB", [](const Config& c) { return c.serving.max_text_bytes == 2u << 20; }}},
    {"max-connections", {"3", [](const Config& c) { return c.max_connections == 3; }}},
    {"drain-delay-seconds", {"9", [](const Config& c) { return c.drain_delay_seconds == 9; }}},
    {"drain-seconds", {"7", [](const Config& c) { return c.drain_seconds == 7; }}},
    {"log-level", {"debug", [](const Config& c) { return c.log_level == "debug"; }}},
    {"request-log", {"r.log", [](const Config& c) { return c.request_log == "r.log"; }}},
    {"trace", {"t.json", [](const Config& c) { return c.trace == "t.json"; }}},
    {"residency", {"there", [](const Config& c) { return c.residency == "there"; }}},
    {"record-routing", {"routing", [](const Config& c) { return c.record_routing == "routing"; }}},
    {"learned-state", {"learned", [](const Config& c) { return c.learned_state == "learned"; }}},
};

TEST_F(ConfigTest, EverySettingIsTakenFromEverySource) {
  for (const Setting& setting : Settings()) {
    const std::string name(setting.name);
    SCOPED_TRACE(name);
    ASSERT_TRUE(kTaken.contains(name)) << "say here what the new setting does";
    const Taken& taken = kTaken.at(name);
    const std::string value(taken.value);
    std::vector<std::string> store;
    if (name != "store") store = {"--store", "s"};
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.end(), store.begin(), store.end());
      return more;
    };
    EXPECT_FALSE(taken.in(Read({"--store", "s"})->config)) << "the default";
    const std::string flag = "--" + name;
    std::string variable = "MOED_" + name;
    for (char& c : variable) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
    const std::string file = File("one.toml", name + " = \"" + value + "\"\n");
    const std::vector<std::string> by_flag = setting.value.empty() ? std::vector{flag} : std::vector{flag, value};
    for (const auto& outcome : {Read(with(by_flag)), Read(with({}), {{variable, value}}), Read(with({"--config", file}))}) {
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_TRUE(taken.in(outcome->config));
    }
    EXPECT_THAT(Read({"--help"})->answer, HasSubstr("--" + name));
  }
}

// Whether the daemon would start with it; what it says otherwise.
std::string Protection(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--store", "s"});
  const auto outcome = ReadConfig(arguments, [](const char*) -> const char* { return nullptr; });
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  const absl::Status status = outcome.ok() ? CheckConfig(outcome->config) : outcome.status();
  return std::string(status.message().data(), status.message().size());
}

TEST_F(ConfigTest, VariablesThatNobodyReadsAreFound) {
  const char* const environment[] = {"PATH=/bin",
                                     "MOED_MEMORY_BUDGET=8GiB",
                                     "MOED_MEMRY_BUDGET=8GiB",
                                     "MOED_CONFIG=",
                                     "MOED_CACHE_DIR=/cache",
                                     "MOED_HTTP_LISTEN=x",
                                     "MOED_ANY_SERVICE_HOST=10.0.0.1",
                                     "MOED_PORT=tcp://10.0.0.1:50051",
                                     "MOED_PORT_50051_TCP_ADDR=10.0.0.1",
                                     "MOED_TOKEN",
                                     nullptr};
  EXPECT_THAT(StrayVariables(environment, "MOED_", ReadsVariable), ElementsAre("MOED_MEMRY_BUDGET", "MOED_TOKEN"));
  for (const Setting& setting : Settings()) {
    std::string variable = StrCat("MOED_", absl::AsciiStrToUpper(ToAbsl(setting.name)));
    std::ranges::replace(variable, '-', '_');
    EXPECT_TRUE(ReadsVariable(variable)) << variable;
  }
}

TEST_F(ConfigTest, WhatOtherMachinesReachIsProtectedOrSaidToBeOpen) {
  const std::vector<std::string> tls = {"--tls-cert", "c", "--tls-key", "k"};
  const auto with = [](std::vector<std::string> first, const std::vector<std::string>& more) {
    first.insert(first.end(), more.begin(), more.end());
    return first;
  };
  for (const char* local : {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "unix:/x"}) {
    EXPECT_EQ(Protection({"--listen", local, "--control-listen", local}), "");
  }
  for (const char* open : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "128.0.0.1:1", "moed.example.org:1", "[::ffff:10.0.0.1]:1"}) {
    SCOPED_TRACE(open);
    for (const char* flag : {"--listen", "--control-listen"}) {
      const std::vector<std::string> listen = {flag, open};
      const std::string said = Protection(listen);
      EXPECT_THAT(said, HasSubstr(std::string(flag) + " " + open));
      for (const char* remedy : {"--tls-cert FILE", "--tokens FILE", "--tls-client-ca FILE", "--insecure", "127.0.0.1"}) {
        EXPECT_THAT(said, HasSubstr(remedy));
      }
      EXPECT_THAT(Protection(with(listen, tls)), HasSubstr("--tokens FILE"));
      EXPECT_NE(Protection(with(listen, {"--tokens", "t"})), "");
      EXPECT_EQ(Protection(with(with(listen, tls), {"--tokens", "t"})), "");
      EXPECT_EQ(Protection(with(with(listen, tls), {"--tls-client-ca", "a"})), "");
      EXPECT_EQ(Protection(with(listen, {"--insecure"})), "");
    }
  }
  EXPECT_THAT(Protection({"--tls-cert", "c"}), HasSubstr("--tls-key is missing"));
  EXPECT_THAT(Error({"--store", "s"}, {{"MOED_INSECURE", "yes"}}), HasSubstr("--insecure (MOED_INSECURE): \"yes\""));
  EXPECT_FALSE(Read({"--store", "s"}, {{"MOED_INSECURE", "off"}})->config.insecure);
}

TEST_F(ConfigTest, PartsAndOptionsThatDoNotGoTogetherAreToldBeforeAStoreIsOpened) {
  const struct {
    std::vector<std::string> arguments;
    const char* said;
  } kCases[] = {{{"--preset-options", "hobbit-t3=1"}, "unknown preset option \"hobbit-t3\""},
                {{"--preset", "swapmoe", "--fill-cache", "on"}, "preset swapmoe chooses itself"},
                {{"--preset", "edgemoe"}, "moed-plan widths"},
                {{"--preset", "hobbit", "--preset-options", "hobbit-t1=0.9,hobbit-t2=0.1"}, "T1 <= T2"},
                {{"--policy", "swapmoe"}, "works with the router mask"}};
  for (const auto& [arguments, said] : kCases)
    EXPECT_THAT(Protection(arguments), AllOf(StartsWith("--preset: "), HasSubstr(said)));
  EXPECT_EQ(Protection({"--preset", "edgemoe", "--preset-options", "widths=/of/a/store"}), "");
  for (const char* preset : {"swapmoe", "load-on-demand"}) {
    EXPECT_THAT(Protection({"--preset", preset, "--residency", "r"}), AllOf(StartsWith("--residency: "), HasSubstr(preset)));
  }
}

TEST_F(ConfigTest, KeysAndValuesOnDiskNeedAFolderAndItsBytes) {
  for (const std::vector<std::string>& one : {std::vector<std::string>{"--kv-spill", "/k"}, {"--kv-spill-budget", "1GiB"}}) {
    EXPECT_THAT(Protection(one), HasSubstr("--kv-spill and --kv-spill-budget: one is given without the other"));
  }
  EXPECT_EQ(Protection({"--kv-spill", "/k", "--kv-spill-budget", "1GiB"}), "");
}

TEST_F(ConfigTest, ErrorsSayWhatIsAllowedAndWhereItStood) {
  const struct {
    std::vector<std::string> arguments;
    std::vector<const char*> named;
  } kCases[] = {
      {{}, {"--store is missing"}},
      {{"--stoer", "x"}, {"--stoer", "allowed are: --store, --memory-budget"}},
      {{"extra"}, {"extra", "--store"}},
      {{"--store"}, {"--store"}},
      {{"--store", ""}, {"--store (flag)", "a path"}},
      {{"--store", "a", "--store", "b"}, {"--store"}},
      {{"--store", "x", "--threads", "0"}, {"--threads (flag)", "\"0\"", "from 1 to 256"}},
      {{"--store", "x", "--max-text-bytes", "9MiB"}, {"--max-text-bytes (flag)", "\"9MiB\"", "1KiB to 8MiB", "on its way"}},
      {{"--store", "x", "--threads", "two"}, {"--threads (flag)", "\"two\""}},
      {{"--store", "x", "--threads", "2x"}, {"\"2x\""}},
      {{"--store", "x", "--max-running", "99999999999999"}, {"--max-running"}},
      {{"--store", "x", "--max-context", "1"}, {"--max-context", "from 2"}},
      {{"--store", "x", "--memory-budget", "8XB"}, {"--memory-budget (flag)", "8XB"}},
      {{"--store", "x", "--kv-budget", "-1"}, {"--kv-budget"}},
      {{"--store", "x", "--device-budget", "much"}, {"--device-budget"}},
      {{"--store", "x", "--listen", "50051"}, {"--listen", "HOST:PORT"}},
      {{"--store", "x", "--listen", "*:50051"}, {"--listen", "*:50051", "0.0.0.0", "[::]", "HOST:PORT"}},
      {{"--store", "x", "--metrics-listen", ":9464"}, {"--metrics-listen", "0.0.0.0", "HOST:PORT"}},
      {{"--store", "x", "--listen", "::1:50051"}, {"--listen", "brackets"}},
      {{"--store", "x", "--listen", "a:70000"}, {"--listen", "65535"}},
      {{"--store", "x", "--listen", "a:"}, {"--listen"}},
      {{"--store", "x", "--metrics-listen", "on"}, {"--metrics-listen"}},
      {{"--store", "x", "--log-level", "loud"}, {"loud", "trace, debug, info, warning, error, critical, off"}},
      {{"--store", "x", "--trace", ""}, {"--trace"}},
      {{"--store", "x", "--prefill-chunk", "4"}, {"--prefill-chunk: 4", "--max-running 8"}},
      {{"--store", "x", "--config", "/no/such/file"}, {"/no/such/file"}},
      {{"--store", "x", "--config", "/"}, {"configuration file", "Is a directory"}},
      {{"--store", "x", "--config", "/dev/zero"}, {"/dev/zero", "longer than"}},
  };
  for (const auto& test : kCases) {
    const std::string error = Error(test.arguments);
    for (const char* named : test.named) EXPECT_THAT(error, HasSubstr(named));
  }
  EXPECT_THAT(Error({"--store", "x"}, {{"MOED_THREADS", "0"}}), HasSubstr("--threads (MOED_THREADS)"));
  const std::string unknown = File("unknown.toml", "polciy = \"lru\"\n");
  EXPECT_THAT(Error({"--config", unknown}), HasSubstr("unknown key \"polciy\"; allowed are: store, memory-budget"));
  EXPECT_THAT(Error({"--config", File("section.toml", "[cache]\npolicy = \"lru\"\n")}), HasSubstr("sections are not used"));
  EXPECT_THAT(Error({"--config", File("list.toml", "store = [\"a\", \"b\"]\n")}), HasSubstr("one value"));
  const std::string twice = "store = \"s\"\nthreads = 1\nlog-level = \"off\"\nthreads = 2\n";
  EXPECT_THAT(Error({"--config", File("twice.toml", twice)}), HasSubstr("threads is given twice"));
  EXPECT_THAT(Error({"--config", File("value.toml", "store = \"s\"\nthreads = 0\n")}), HasSubstr("key threads of "));
}

template <class Rows>
std::vector<std::string> NamesOf(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

TEST_F(ConfigTest, NamesComeFromTheTables) {
  const std::map<std::string, std::vector<std::string>> kTables = {
      {"preset", NamesOf(Presets())},       {"policy", NamesOf(Policies())},         {"fidelity-rule", NamesOf(FidelityRules())},
      {"predictor", NamesOf(Predictors())}, {"io-backend", NamesOf(ReadBackends())}, {"backend", NamesOf(ComputeBackends())}};
  for (const auto& [flag, names] : kTables) {
    const std::string error = Error({"--store", "x", "--" + flag, "nonsense"});
    EXPECT_THAT(error, HasSubstr("nonsense"));
    for (const std::string& name : names) {
      EXPECT_THAT(error, HasSubstr(name));
      EXPECT_TRUE(Read({"--store", "x", "--" + flag, name}).ok()) << flag << " " << name;
    }
  }
}

TEST_F(ConfigTest, TheCacheIsFilledAsThePresetSaysUnlessTold) {
  EXPECT_EQ(Read({"--store", "x"})->config.preset.fill, std::nullopt);
  EXPECT_EQ(Read({"--store", "x", "--fill-cache", "on"})->config.preset.fill, true);
  EXPECT_EQ(Read({"--store", "x", "--fill-cache", "off"})->config.preset.fill, false);
  EXPECT_THAT(Error({"--store", "x", "--fill-cache", "maybe"}), testing::AllOf(HasSubstr("maybe"), HasSubstr("on, off")));
}

TEST_F(ConfigTest, ListHasTheRowsOfEveryTable) {
  const std::string list = Read({"--list"})->answer;
  std::vector<std::string> names;
  for (const auto& of_table : {NamesOf(Presets()), NamesOf(Policies()), NamesOf(Predictors()), NamesOf(FidelityRules()),
                               NamesOf(RouterMasks()), NamesOf(ReadBackends()), NamesOf(ComputeBackends()), NamesOf(Formats())}) {
    names.insert(names.end(), of_table.begin(), of_table.end());
  }
  for (const Family& family : Families()) names.emplace_back(family.model_type);
  for (const std::string& name : names) EXPECT_THAT(list, HasSubstr("\n  " + name + " "));
  EXPECT_THAT(list, HasSubstr("stacked-gate-layers=3"));
}

TEST_F(ConfigTest, GrpcMayListenOnAPathAndMetricsMayNot) {
  EXPECT_EQ(Read({"--store", "a", "--listen", "unix:/run/moed"})->config.listen.Text(), "unix:/run/moed");
  EXPECT_EQ(Read({"--store", "a", "--control-listen", "unix:c"})->config.control_listen->path, "c");
  EXPECT_THAT(Error({"--store", "a", "--listen", "unix:"}), HasSubstr("from 1 to"));
  EXPECT_THAT(Error({"--store", "a", "--listen", "unix:" + std::string(108, 'x')}), HasSubstr("from 1 to 107 bytes"));
  EXPECT_THAT(Error({"--store", "a", "--metrics-listen", "unix:/run/moed"}), HasSubstr("HOST:PORT"));
}

TEST_F(ConfigTest, VersionTellsTheBuild) { EXPECT_THAT(Read({"--version"})->answer, HasSubstr("moed 0.")); }

TEST_F(ConfigTest, DefaultBudgetIsTheSmallestLimitOfTheGroupAndItsAncestors) {
  const auto budget = [&] { return FindDefaultBudget(directory_.string()); };
  EXPECT_TRUE(absl::IsNotFound(budget().status()));
  File("proc/meminfo", "MemTotal: 9999 kB\nMemAvailable: 10485760 kB\n");
  const uint64_t beside = 64 << 20;
  ASSERT_TRUE(budget().ok());
  EXPECT_EQ(budget()->bytes, (uint64_t{10} << 30) / 100 * 80 - beside);
  EXPECT_THAT(budget()->reason, HasSubstr("available"));

  File("proc/self/cgroup", "0::/a/b\n");
  File("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_THAT(budget()->reason, HasSubstr("available"));
  File("sys/fs/cgroup/a/memory.max", "1073741824\n");
  EXPECT_EQ(budget()->bytes, (uint64_t{1} << 30) / 100 * 98 - beside);
  EXPECT_THAT(budget()->reason, HasSubstr("/sys/fs/cgroup/a/memory.max"));
  File("sys/fs/cgroup/memory.max", "536870912\n");
  EXPECT_EQ(budget()->bytes, (uint64_t{512} << 20) / 100 * 98 - beside) << "a container sees its own group as the root";
  EXPECT_THAT(budget()->reason, StartsWith("98 % of "));
  File("sys/fs/cgroup/memory.max", "62914560\n");
  EXPECT_EQ(budget()->bytes, 4 << 20);
  EXPECT_THAT(budget()->reason, StartsWith("the least that is tried: no more are 98 % of the cgroup's limit of 60.0 MiB"));

  File("proc/self/cgroup", "5:cpu,memory:/c\n4:pids:/d\n");
  File("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_THAT(budget()->reason, HasSubstr("available")) << "no limit, as version 1 writes it";
  File("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "2147483648\n");
  EXPECT_EQ(budget()->bytes, (uint64_t{2} << 30) / 100 * 98 - beside);
  EXPECT_EQ(FindDefaultBudget(directory_.string(), 32 << 20)->bytes, budget()->bytes - (32 << 20));
  // What a device's driver holds for the process counts against the limit; what is available is what it left.
  EXPECT_EQ(FindDefaultBudget(directory_.string(), 0, 48 << 20)->bytes, budget()->bytes - (48 << 20));
  File("proc/meminfo", "MemAvailable: 1048576 kB\n");
  EXPECT_EQ(FindDefaultBudget(directory_.string(), 0, 48 << 20)->bytes, budget()->bytes);
}

TEST_F(ConfigTest, ARunTakesNoMoreThanItsGroupMay) {
  File("proc/meminfo", "MemAvailable: 10485760 kB\n");
  const std::string root = directory_.string();
  const uint64_t gib = uint64_t{1} << 30, beside = 96 << 20;
  EXPECT_THAT(ChooseBudget(10 * gib - beside, root)->reason, Not(HasSubstr("available")));
  EXPECT_EQ(ChooseBudget(40 * gib, root)->bytes, 40 * gib) << "what is available may come from others";
  EXPECT_THAT(ChooseBudget(40 * gib, root)->reason, HasSubstr("only 10.0 GiB"));
  File("proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 10485760 kB\n");
  EXPECT_EQ(ChooseBudget(32 * gib - beside, root)->bytes, 32 * gib - beside);
  const absl::Status beyond = ChooseBudget(32 * gib - beside + 1, root).status();
  EXPECT_TRUE(absl::IsInvalidArgument(beyond));
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("the machine's memory of 32.0 GiB"));
  File("proc/self/cgroup", "0::/\n");
  File("sys/fs/cgroup/memory.max", "1073741824\n");
  EXPECT_EQ(ChooseBudget(std::nullopt, root)->bytes, gib / 100 * 98 - beside);
  EXPECT_EQ(ChooseBudget(gib - beside, root)->bytes, gib - beside);
  const absl::Status more = ChooseBudget(gib - beside + 1, root).status();
  EXPECT_TRUE(absl::IsInvalidArgument(more));
  EXPECT_THAT(std::string(more.message()), HasSubstr("/sys/fs/cgroup/memory.max"));
  File("sys/fs/cgroup/memory.max", "1048576\n");
  EXPECT_TRUE(absl::IsInvalidArgument(ChooseBudget(1, root).status()));
}

TEST(DeviceBudget, IsTheDevicesOrRefused) {
  constexpr uint64_t kDevice = 16 << 20;
  EXPECT_EQ(ChooseDeviceBudget(std::nullopt, {}, "avx2").value(), std::nullopt);
  EXPECT_EQ(ChooseDeviceBudget(std::nullopt, {kDevice, kDevice}, "cuda").value(), 15u << 20);
  EXPECT_EQ(ChooseDeviceBudget(std::nullopt, {kDevice, 3 << 20}, "cuda").value(), (3u << 20) - (3u << 16));
  // What is left is for the driver, which is told of no budget.
  EXPECT_EQ(ChooseDeviceBudget(15 << 20, {kDevice, kDevice}, "cuda").value(), 15u << 20);
  const absl::Status too_much = ChooseDeviceBudget((15 << 20) + 1, {kDevice, kDevice}, "cuda").status();
  EXPECT_EQ(too_much.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_much.message()), HasSubstr("at most 15.0 MiB (15728640 bytes)"));
  constexpr uint64_t kLarge = uint64_t{80} << 30, kMost = kLarge - (256 << 20);
  EXPECT_EQ(ChooseDeviceBudget(kMost, {kLarge, kLarge}, "cuda").value(), kMost);
  EXPECT_EQ(ChooseDeviceBudget(kMost + 1, {kLarge, kLarge}, "cuda").status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status refused = ChooseDeviceBudget(kDevice, {}, "avx2").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("'avx2' has no memory of its own"));
}

}  // namespace
}  // namespace moed
