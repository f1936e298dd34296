#include "server/commands/run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/flag_values.h"
#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/expert/presets/preset.h"
#include "server/commands/command_line.h"
#include "server/commands/local_daemon.h"
#include "server/commands/model_source.h"
#include "server/commands/run_budget.h"
#include "server/commands/run_log.h"
#include "server/commands/store_cache.h"
#include "server/startup/config.h"
#include "server/startup/outputs.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kStopSeconds = 10;                  // beyond what running requests may take
constexpr size_t kMostPromptBytes = 8 << 20;      // as --max-text-bytes
constexpr std::string_view kNoTemplate = "none";  // of moed-pack
constexpr std::string_view kOwnFlags[] = {"--store", "--memory-budget", "--listen"};

constexpr const char* kDescription =
    "From a model's files to a conversation in the terminal: packs the model once, serves it within a memory budget, talks.\n"
    "With --prompt, or without a terminal, it answers once and ends; without --prompt it then reads standard input.";
constexpr const char* kFooter =
    "Packed models are kept in $MOED_CACHE_DIR, else in moed in $XDG_CACHE_HOME, else in ~/.cache/moed, and packed anew when "
    "the\n"
    "files of MODEL change. What follows -- are flags of the daemon (moed --help): moed run MODEL -- --max-context 8192\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad usage: a flag, MODEL, a budget that does not do; 3 to 6 as moectl's; 128 + N ended by\n"
    "signal N (130: Ctrl-C). What Ctrl-C left packed is taken up by the same command.";

struct Flags {
  std::string model;
  std::string memory;
  std::optional<std::string> prompt;
  std::string system;
  std::string chat_template;
  std::vector<std::string> sampling;  // flags of moectl, with their values
  std::vector<std::string> pack;      // flags of moed-pack, likewise
  std::vector<std::string> daemon;    // what came after --
};

const Environment kEnvironment = [](const char* name) { return std::getenv(name); };

// A flag that is handed on as it is.
CLI::Option* HandOn(CLI::App& app, const std::string& flag, std::vector<std::string>& to, const std::string& help) {
  return app.add_option_function<std::string>(
      flag,
      [flag, &to](const std::string& value) {
        to.push_back(flag);
        to.push_back(value);
      },
      help);
}

void Define(CLI::App& app, Flags& flags) {
  app.add_option("MODEL", flags.model, "a GGUF file (of a split one, any part), a Hugging Face folder, or a store of moed-pack")
      ->required()
      ->option_text(" ");
  app.add_option("--memory", flags.memory,
                 "the memory budget (\"8GiB\"); without it, from the cgroup's limit or the available memory, whichever is less")
      ->type_name("BYTES");
  app.add_option("--prompt", flags.prompt, "answer this, and end")->type_name("TEXT");
  app.add_option("--system", flags.system, "the system's message, before the first")->type_name("TEXT");
  HandOn(app, "--max-new-tokens", flags.sampling, "most tokens of an answer")->transform(AtLeast(1))->type_name("N");
  HandOn(app, "--temperature", flags.sampling, "0 = greedy; default: the model's")->transform(AtLeast(0.0))->type_name("X");
  HandOn(app, "--seed", flags.sampling, "same seed, same tokens")->transform(AtLeast<uint64_t>(0))->type_name("N");
  HandOn(app, "--expert-formats", flags.pack, "of moed-pack")->type_name("F[:Q],...");
  HandOn(app, "--trunk-format", flags.pack, "of moed-pack")->type_name("F[:Q]");
  app.add_option("--chat-template", flags.chat_template,
                 "Jinja that makes a prompt of a conversation, instead of the model's; none: no conversations")
      ->option_text("FILE (or none)");
}

// An exit code where there is nothing to run.
std::optional<int> Parse(std::span<const std::string> arguments, Flags& flags) {
  const auto end = std::ranges::find(arguments, "--");
  if (end != arguments.end()) flags.daemon.assign(end + 1, arguments.end());
  CLI::App app(kDescription, "moed run");
  app.footer(kFooter);
  Define(app, flags);
  return ParseCommandLine(app, {arguments.begin(), end}, ", and flags of the daemon after --");
}

absl::StatusOr<ModelSource> ExamineSource(Flags& flags) {
  MOED_ASSIGN_OR_RETURN(ModelSource source, ExamineModel(flags.model));
  if (!flags.chat_template.empty()) {
    if (flags.chat_template != kNoTemplate) MOED_RETURN_IF_ERROR(AddFile(flags.chat_template, source));
    flags.pack.insert(flags.pack.end(), {"--chat-template", flags.chat_template});
  }
  if (!source.is_store || flags.pack.empty()) return source;
  return InvalidArgument(flags.pack.front(), ": ", source.path, " is packed already");
}

// What the daemon will make of its flags and this process's environment. Its store and its socket are not known yet.
absl::StatusOr<Config> ReadDaemonConfig(const Flags& flags) {
  for (const std::string& flag : flags.daemon) {
    for (const std::string_view own : kOwnFlags) {
      if (flag == own || flag.starts_with(StrCat(own, "="))) {
        return InvalidArgument(own, " after --: moed run chooses that itself", own == kOwnFlags[1] ? " (--memory)" : "");
      }
    }
  }
  std::vector<std::string> arguments = flags.daemon;
  arguments.insert(arguments.end(), {"--store", flags.model, "--listen", "unix:moed"});
  MOED_ASSIGN_OR_RETURN(ConfigOutcome outcome, ReadConfig(arguments, kEnvironment));
  if (!outcome.answer.empty()) return InvalidArgument("after --: flags that end the daemon at once have no use here");
  if (flags.memory.empty()) return outcome.config;
  const absl::StatusOr<uint64_t> budget = ParseBytes(flags.memory);
  if (!budget.ok()) return Annotate(budget.status(), "--memory");
  outcome.config.memory_budget = *budget;
  return outcome.config;
}

// Whatever would make it ask for one is another daemon's.
absl::Status CheckWithoutTokens(const Flags& flags, const Config& config) {
  if (config.access.tokens.empty()) return absl::OkStatus();
  const bool after = std::ranges::any_of(flags.daemon, [](const std::string& flag) { return flag.starts_with("--tokens"); });
  const bool variable = kEnvironment("MOED_TOKENS") != nullptr;
  return InvalidArgument(after      ? "--tokens after --"
                         : variable ? "MOED_TOKENS"
                                    : "tokens in the configuration file",
                         ": the daemon of moed run is this user's alone, and asks for no token");
}

// A store that is not packed yet has a precision for each format that is named, or one.
absl::Status CheckPrecisions(const Flags& flags, const Config& config) {
  MOED_ASSIGN_OR_RETURN(const PresetSetup preset, ChoosePreset(config.preset));
  const auto flag = std::ranges::find(flags.pack, "--expert-formats");
  const auto precisions = 1 + (flag == flags.pack.end() ? 0 : std::ranges::count(*std::next(flag), ','));
  if (precisions >= preset.rule->least_precisions) return absl::OkStatus();
  return InvalidArgument("preset ", preset.row->name, " with the fidelity rule ", preset.rule->name, " needs experts at ",
                         preset.rule->least_precisions, " precisions: --expert-formats names them, as in q8,q2p");
}

// What packing changes nothing of.
absl::Status CheckBeforePacking(const Flags& flags, const ModelSource& source, const Config& config) {
  MOED_RETURN_IF_ERROR(CheckWithoutTokens(flags, config));
  MOED_RETURN_IF_ERROR(CheckConfig(config));
  MOED_RETURN_IF_ERROR(CheckFolders(config));
  if (!source.is_store) MOED_RETURN_IF_ERROR(CheckPrecisions(flags, config));
  return ChooseBudget(config.memory_budget).status();
}

bool OnTerminal() { return isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0; }

// Absent: there will be a conversation.
absl::StatusOr<std::optional<std::string>> ReadPrompt(const Flags& flags) {
  std::optional<std::string> prompt = flags.prompt;
  if (!prompt && OnTerminal()) return prompt;
  if (!prompt) {
    prompt.emplace(kMostPromptBytes + 1, '\0');
    std::cin.read(prompt->data(), static_cast<std::streamsize>(prompt->size()));
    prompt->resize(static_cast<size_t>(std::cin.gcount()));
    prompt->shrink_to_fit();
    if (prompt->size() > kMostPromptBytes)
      return InvalidArgument("standard input: a prompt has at most ", kMostPromptBytes, " bytes");
    if (prompt->ends_with('\n')) prompt->pop_back();
  }
  if (prompt->empty()) return InvalidArgument("the prompt is empty: give --prompt TEXT, or a text on standard input");
  return prompt;
}

std::vector<std::string> DaemonFlags(const Flags& flags, const Config& config, uint64_t budget) {
  // Nobody else knows of this daemon, unless the user's flags say so.
  static constexpr std::pair<std::string_view, std::string_view> kAlone[] = {{"--metrics-listen", "off"},
                                                                             {"--drain-delay-seconds", "0"}};
  std::vector<std::string> all = {"--store", config.store, "--memory-budget", StrCat(budget)};
  for (const auto& [flag, value] : kAlone) {
    const bool given = std::ranges::any_of(flags.daemon, [flag = flag](const std::string& f) { return f.starts_with(flag); });
    if (!given) all.insert(all.end(), {std::string(flag), std::string(value)});
  }
  all.insert(all.end(), flags.daemon.begin(), flags.daemon.end());
  return all;
}

// Of moectl. A prompt goes by a file: it may be longer than an argument, and others see arguments.
absl::StatusOr<std::vector<std::string>> TalkArguments(const Flags& flags, const std::optional<std::string>& prompt,
                                                       bool has_chat_template, const PrivateFolder& folder) {
  std::vector<std::string> arguments = {"chat"};
  if (!has_chat_template) {
    if (!flags.system.empty()) return InvalidArgument("--system: the model has no chat template");
    std::fprintf(stderr, "the model has no chat template: texts are continued as they are\n");
    arguments.push_back("--plain");
  }
  if (!flags.system.empty()) arguments.insert(arguments.end(), {"--system", flags.system});
  if (prompt) {
    const std::string path = folder / std::string(kPromptFile);
    std::ofstream file(path, std::ios::binary);
    file << *prompt << std::flush;
    if (!file) return absl::UnavailableError(StrCat("cannot write ", path));
    arguments.insert(arguments.end(), {"--prompt-file", path});
  }
  arguments.insert(arguments.end(), flags.sampling.begin(), flags.sampling.end());
  return arguments;
}

// moectl in front of the user; its exit code.
absl::StatusOr<int> Talk(std::vector<std::string> arguments, LocalDaemon& daemon, StopSignals& signals) {
  std::fprintf(stderr, "serving; from elsewhere: moectl --server %s\n", daemon.address().c_str());
  arguments.insert(arguments.begin(), {"--server", daemon.address()});
  // The daemon on that socket wants no token; those of the environment are another's.
  ChildOptions options{
      .arguments = std::move(arguments), .variables = {"MOECTL_TOKEN=", "MOECTL_TOKEN_FILE="}, .blocked = signals.before()};
  MOED_ASSIGN_OR_RETURN(options.program, FindProgram("moectl"));
  MOED_ASSIGN_OR_RETURN(Child client, Child::Start(options));
  int ended_by = 0;
  bool lost = false;
  while (!client.Ended()) {
    const std::optional<StopSignal> stop = signals.Wait();
    if (stop && stop->number != SIGINT) ended_by = stop->number;
    if (stop && !stop->reached_children) client.Signal(stop->number == SIGINT ? SIGINT : SIGTERM);
    if (!lost && daemon.Ended()) {
      lost = true;
      client.Signal(SIGTERM);
    }
  }
  if (lost) return daemon.HowItEnded();
  return ended_by == 0 ? client.exit_code() : 128 + ended_by;
}

absl::StatusOr<int> Run(const Flags& flags, const ModelSource& source, Config config, const std::optional<std::string>& prompt,
                        StopSignals& signals) {
  MOED_ASSIGN_OR_RETURN(const std::string cache, CacheFolder(kEnvironment));
  if (!source.is_store) {
    MOED_ASSIGN_OR_RETURN(config.store, PackOnce(cache, source, flags.pack, signals));
  }
  MOED_ASSIGN_OR_RETURN(const RunBudget budget, PlanRun(config));
  std::fputs(budget.table.c_str(), stderr);
  MOED_ASSIGN_OR_RETURN(const PrivateFolder folder, PrivateFolder::Make(kEnvironment));
  MOED_ASSIGN_OR_RETURN(const std::vector<std::string> talk, TalkArguments(flags, prompt, budget.has_chat_template, folder));
  RemoveLeftRunLogs(cache);
  MOED_ASSIGN_OR_RETURN(LocalDaemon daemon,
                        LocalDaemon::Start(folder, DaemonFlags(flags, config, budget.bytes), RunLogPath(cache), signals));
  std::fprintf(stderr, "loading %s\n", config.store.c_str());
  const absl::Status serves = daemon.WaitUntilServing(signals);
  absl::StatusOr<int> code = serves.ok() ? Talk(talk, daemon, signals) : absl::StatusOr<int>(serves);
  if (!daemon.Ended()) {
    const absl::Status stopped = daemon.Stop(config.drain_delay_seconds + config.drain_seconds + kStopSeconds, signals);
    if (code.ok() && !stopped.ok()) return stopped;
  }
  return code;
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "moed run: %s\n", std::string(status.message()).c_str());
  return code;
}

}  // namespace

int RunModel(std::span<const std::string> arguments) {
  Flags flags;
  if (const std::optional<int> code = Parse(arguments, flags)) return *code;
  const absl::StatusOr<ModelSource> source = ExamineSource(flags);
  if (!source.ok()) return Fail(source.status(), kExitUsage);
  const absl::StatusOr<Config> config = ReadDaemonConfig(flags);
  if (!config.ok()) return Fail(config.status(), kExitUsage);
  const absl::Status fits = CheckBeforePacking(flags, *source, *config);
  if (!fits.ok()) return Fail(fits, kExitUsage);
  const absl::StatusOr<std::optional<std::string>> prompt = ReadPrompt(flags);
  if (!prompt.ok()) return Fail(prompt.status(), kExitUsage);
  spdlog::set_level(spdlog::level::off);  // the daemon logs what it makes of the same parts
  StopSignals signals;
  const absl::StatusOr<int> code = Run(flags, *source, *config, *prompt, signals);
  if (code.ok()) return *code;
  if (absl::IsCancelled(code.status()) && signals.first() != 0) return Fail(code.status(), 128 + signals.first());
  const bool usage = absl::IsInvalidArgument(code.status()) || absl::IsResourceExhausted(code.status());
  return Fail(code.status(), usage ? kExitUsage : kExitFailed);
}

}  // namespace moed
