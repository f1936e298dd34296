#include "server/startup/config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <sstream>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "core/base/bounded_file.h"
#include "core/base/status.h"
#include "core/base/version.h"
#include "server/startup/listing.h"
#include "server/wire/exposure.h"

namespace moed {
namespace {

constexpr const char* kDescription =
    "moed serves a packed Mixture-of-Experts model over gRPC. Its experts pass through one cache from disk,\n"
    "so that the model may be larger than the memory it is given.";
constexpr const char* kFooter =
    "Every option may also stand in the environment (MOED_MEMORY_BUDGET=8GiB) or in a configuration file\n"
    "(memory-budget = \"8GiB\"). A flag wins over the environment, the environment over the file.\n"
    "\n"
    "Examples:\n"
    "  moed --store tales.moed --memory-budget 8MiB\n"
    "  moed --store mixtral.moed --memory-budget 12GiB --listen 0.0.0.0:50051 --tls-cert c.pem --tls-key k.pem --tokens tokens\n"
    "  moed --config /etc/moed.toml --log-level debug\n"
    "\n"
    "Signals: SIGTERM and SIGINT drain (running requests go on for --drain-seconds); a second one ends at once with 128 + its "
    "number. SIGHUP reads certificates and tokens anew, and opens --request-log anew.";

std::string FlagName(std::string_view name) { return StrCat("--", name); }

std::string VariableName(std::string_view name) {
  std::string variable = StrCat("MOED_", name);
  for (char& c : variable) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

std::string AllowedFlags() {
  return JoinNames(Settings(), [](const Setting& s) { return FlagName(s.name); }) + ", --config, --help, --list, --version";
}

// A value and where it was found.
struct Given {
  std::string text;
  std::string source;
};

absl::Status ReadFile(const std::string& path, std::vector<std::optional<Given>>& given) {
  constexpr size_t kMostBytes = 1 << 20;
  const absl::StatusOr<std::string> contents = ReadBoundedFile(path, kMostBytes);
  if (!contents.ok()) return Annotate(contents.status(), "configuration file");
  std::vector<CLI::ConfigItem> items;
  try {
    std::istringstream text(*contents);
    items = CLI::ConfigTOML().from_config(text);
  } catch (const CLI::Error& error) {
    return InvalidArgument("configuration file ", path, ": ", error.what());
  }
  const auto settings = Settings();
  std::vector<bool> named(settings.size());
  for (const CLI::ConfigItem& item : items) {
    if (!item.parents.empty())
      return InvalidArgument("configuration file ", path, ": [", item.parents.front(), "]: sections are not used");
    const auto found = std::ranges::find_if(settings, [&](const Setting& s) { return s.name == item.name; });
    if (found == settings.end()) {
      return InvalidArgument("configuration file ", path, ": unknown key \"", item.name,
                             "\"; allowed are: ", JoinNames(settings, [](const Setting& s) { return s.name; }));
    }
    if (item.inputs.size() != 1) return InvalidArgument("configuration file ", path, ": ", item.name, ": one value is wanted");
    const size_t setting = found - settings.begin();
    if (named[setting]) return InvalidArgument("configuration file ", path, ": ", found->name, " is given twice");
    named[setting] = true;
    auto& slot = given[setting];
    if (!slot.has_value()) slot = Given{item.inputs.front(), StrCat("key ", item.name, " of ", path)};
  }
  return absl::OkStatus();
}

struct CommandLine {
  std::vector<std::optional<Given>> given;  // by setting
  std::string file;
  std::string answer;
};

absl::StatusOr<CommandLine> ParseCommandLine(std::span<const std::string> arguments, std::string_view more_help) {
  const auto settings = Settings();
  CommandLine line;
  line.given.resize(settings.size());
  std::vector<std::string> texts(settings.size());
  std::vector<CLI::Option*> options;
  CLI::App app(kDescription, "moed");
  app.get_formatter()->column_width(40);
  app.footer(more_help.empty() ? kFooter : StrCat(kFooter, "\n\n", more_help));
  for (size_t i = 0; i < settings.size(); ++i) {
    const Setting& setting = settings[i];
    const std::string initial = setting.initial.empty() ? "" : StrCat(" [", setting.initial, "]");
    const std::string flag = FlagName(setting.name), help = StrCat(setting.help, initial);
    options.push_back(setting.value.empty() ? app.add_flag(flag, texts[i], help)
                                            : app.add_option(flag, texts[i], help)->type_name(std::string(setting.value)));
    options.back()->group(std::string(setting.group));
  }
  app.add_option("--config", line.file, "configuration file (TOML or INI) with the names of these options as keys")
      ->type_name("FILE");
  bool list = false;
  app.add_flag("--list", list, "every preset, policy, predictor, ... that there is, with its options");
  app.set_version_flag("--version", StrCat("moed ", BuildVersion()), "version and build details");
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    if (list) line.answer = ListTables();
  } catch (const CLI::CallForHelp&) {
    line.answer = app.help();
  } catch (const CLI::CallForVersion& version) {
    line.answer = StrCat(version.what(), "\n");
  } catch (const CLI::ExtrasError& error) {
    return InvalidArgument(error.what(), "; allowed are: ", AllowedFlags());
  } catch (const CLI::Error& error) {
    return InvalidArgument(error.what());
  }
  for (size_t i = 0; i < settings.size(); ++i) {
    if (settings[i].value.empty() && texts[i] == "true") texts[i] = "on";  // a flag's word for being there
    if (options[i]->count() > 0) line.given[i] = Given{texts[i], "flag"};
  }
  return line;
}

// The addresses of gRPC, by their flags. That of metrics tells nothing of requests and changes nothing.
std::vector<std::pair<std::string_view, Address>> ServedAddresses(const Config& config) {
  std::vector<std::pair<std::string_view, Address>> served = {{"--listen", config.listen}};
  if (config.control_listen) served.emplace_back("--control-listen", *config.control_listen);
  return served;
}

absl::Status CheckPreset(const Config& config) {
  const absl::StatusOr<PresetSetup> preset = ChoosePreset(config.preset);
  if (!preset.ok()) return Annotate(preset.status(), "--preset");
  if (config.residency.empty() || !ChoosesResidents(*preset)) return absl::OkStatus();
  return InvalidArgument("--residency: preset ", preset->row->name, " decides anew what is in memory: there is nothing to keep");
}

}  // namespace

absl::Status CheckConfig(const Config& config) {
  MOED_RETURN_IF_ERROR(CheckPreset(config));
  if (config.kv_spill.empty() == config.serving.kv_spill_budget.has_value()) {
    return InvalidArgument("--kv-spill and --kv-spill-budget: one is given without the other; a folder and its bytes are wanted");
  }
  MOED_RETURN_IF_ERROR(CheckTlsFiles(config.access.tls));
  for (const auto& [flag, address] : ServedAddresses(config)) {
    MOED_RETURN_IF_ERROR(CheckExposure(flag, address, config.access, config.insecure));
  }
  return absl::OkStatus();
}

void WarnOfExposure(const Config& config) {
  for (const auto& [flag, address] : ServedAddresses(config)) WarnOfExposure(flag, address, config.access);
}

bool ReadsVariable(std::string_view name) {
  if (name == "MOED_CONFIG" || name == "MOED_CACHE_DIR" || name.starts_with("MOED_HTTP_")) return true;
  return std::ranges::any_of(Settings(), [&](const Setting& setting) { return VariableName(setting.name) == name; });
}

absl::StatusOr<ConfigOutcome> ReadConfig(std::span<const std::string> arguments, const Environment& environment,
                                         std::string_view more_help) {
  MOED_ASSIGN_OR_RETURN(CommandLine line, ParseCommandLine(arguments, more_help));
  ConfigOutcome outcome;
  outcome.answer = line.answer;
  if (!outcome.answer.empty()) return outcome;

  const auto settings = Settings();
  for (size_t i = 0; i < settings.size(); ++i) {
    const std::string variable = VariableName(settings[i].name);
    const char* value = environment(variable.c_str());
    if (!line.given[i].has_value() && value != nullptr) line.given[i] = Given{value, variable};
  }
  if (const char* file = environment("MOED_CONFIG"); line.file.empty() && file != nullptr) line.file = file;
  if (!line.file.empty()) MOED_RETURN_IF_ERROR(ReadFile(line.file, line.given));

  outcome.config.serving = ServingOptionsOfThisMachine();
  for (size_t i = 0; i < settings.size(); ++i) {
    if (!line.given[i].has_value()) continue;
    if (absl::Status status = settings[i].apply(line.given[i]->text, outcome.config); !status.ok()) {
      return InvalidArgument(FlagName(settings[i].name), " (", line.given[i]->source, "): ", status.message());
    }
  }
  if (outcome.config.store.empty()) {
    return InvalidArgument("--store is missing: the packed model to serve (made by moed-pack); see moed --help");
  }
  const ServingOptions& serving = outcome.config.serving;
  if (serving.prefill_chunk && *serving.prefill_chunk < serving.max_running) {
    return InvalidArgument("--prefill-chunk: ", *serving.prefill_chunk, " is less than --max-running ", serving.max_running,
                           ": a step holds one token of every running request");
  }
  return outcome;
}

}  // namespace moed
