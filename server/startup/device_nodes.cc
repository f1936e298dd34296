#include "server/startup/device_nodes.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/base/bounded_file.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

constexpr char kProgram[] = "/usr/bin/nvidia-modprobe";
constexpr size_t kMostInformation = 1 << 16;

bool Missing(const std::string& file) { return access(file.c_str(), F_OK) != 0; }

// Empty: the driver does not say.
std::string NumberOf(const std::string& information) {
  for (absl::string_view line : absl::StrSplit(information, '\n')) {
    if (!absl::ConsumePrefix(&line, "Device Minor:")) continue;
    const absl::string_view number = absl::StripAsciiWhitespace(line);
    if (std::ranges::all_of(number, absl::ascii_isdigit)) return std::string(number);
  }
  return "";
}

void Run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "nvidia-modprobe");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  int status = -1;
  if (posix_spawn(&child, kProgram, nullptr, nullptr, pointers.data(), environ) == 0) waitpid(child, &status, 0);
  spdlog::info("ran {} {} for the device's files: status {}", kProgram, arguments[1], status);
}

}  // namespace

std::vector<std::string> CardsWithoutNode(const std::string& cards, const std::string& nodes) {
  std::vector<std::string> numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator card(cards, error), end; !error && card != end; card.increment(error)) {
    const absl::StatusOr<std::string> information = ReadBoundedFile(card->path() / "information", kMostInformation);
    const std::string number = information.ok() ? NumberOf(*information) : "";
    if (!number.empty() && Missing(nodes + "/nvidia" + number)) numbers.push_back(number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

// The first run loads the driver as well, which lists its cards then.
void MakeDeviceNodes(const Config& config) {
  if (config.backend != "cuda" || access(kProgram, X_OK) != 0) return;
  if (Missing("/dev/nvidiactl") || Missing("/dev/nvidia-uvm")) Run({"-c=0", "-u"});
  for (const std::string& number : CardsWithoutNode("/proc/driver/nvidia/gpus", "/dev")) Run({"-c=" + number});
}

}  // namespace moed
