#include "server/commands/doctor.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "CLI/CLI.hpp"
#include "core/base/status.h"
#include "server/commands/command_line.h"
#include "server/commands/store_cache.h"
#include "server/doctor/report.h"

namespace moed {
namespace {

constexpr const char* kDescription =
    "Looks at this machine: what moed can use of it, what is slower than it could be, and what to do about it. Memory and disk "
    "are\n"
    "measured for some seconds. In a folder a file of up to 256 MiB is written for it, which has no name and is gone at the end.";
const Environment kEnvironment = [](const char* name) { return std::getenv(name); };
constexpr const char* kFooter = "Exit status: 0 moed can serve here, 1 it cannot, 2 wrong command line.";

// The folder of what `path` names, as the kernel knows it.
std::string FolderOf(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::canonical(path, error);
  if (error) return path;
  return std::filesystem::is_directory(whole, error) ? whole.string() : whole.parent_path().string();
}

}  // namespace

int CheckMachine(std::span<const std::string> arguments) {
  std::string path;
  double seconds = 1;
  bool json = false;
  CLI::App app(kDescription, "moed doctor");
  app.add_option("--path", path, "folder or store from which experts are to be read [where moed run keeps packed models]")
      ->type_name("PATH");
  app.add_option("--seconds", seconds, "that writing and reading the disk take, about [1]")
      ->check(CLI::Range(0.01, 60.0))
      ->type_name("S");
  app.add_flag("--json", json, "as JSON (docs/doctor.md)");
  app.footer(kFooter);
  if (const std::optional<int> end = ParseCommandLine(app, arguments)) return *end;
  if (path.empty()) {
    absl::StatusOr<std::string> cache = CacheFolder(kEnvironment);
    if (!cache.ok()) {
      std::fprintf(stderr, "moed doctor: %s; --path looks at another one\n", std::string(cache.status().message()).c_str());
      return 2;
    }
    path = *std::move(cache);
  }
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    std::fprintf(stderr, "moed doctor: --path: there is no %s\n", path.c_str());
    return 2;
  }
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write, not death
  const Machine machine{.root = "",
                        .folder = FolderOf(path),
                        .file = OpenProbedFile(path, seconds, Clock::Real()),
                        .seconds = seconds,
                        .clock = Clock::Real()};
  std::vector<CheckedRow> rows;
  for (const Check& check : Checks()) {
    rows.push_back({&check, check.look(machine)});
    if (json) continue;
    std::fputs(RowText(rows.back()).c_str(), stdout);
    std::fflush(stdout);
  }
  std::fputs(json ? DoctorJson(rows, machine.folder).c_str() : VerdictText(rows).c_str(), stdout);
  return CanServe(rows) ? 0 : 1;
}

}  // namespace moed
