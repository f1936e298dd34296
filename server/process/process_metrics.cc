#include "server/process/process_metrics.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <sstream>
#include <string>
#include <utility>

#include "absl/base/const_init.h"
#include "absl/synchronization/mutex.h"
#include "server/process/metric_families.h"
#include "server/sandbox/sandbox.h"

namespace moed {
namespace {

// Files that stay open: descriptors may be short when they are needed most.
class OwnFile {
 public:
  explicit OwnFile(const char* path) : descriptor_(open(path, O_RDONLY | O_CLOEXEC)) {}
  std::istringstream Read() const {
    std::string text;
    char piece[4096];
    for (ssize_t bytes; (bytes = pread(descriptor_, piece, sizeof(piece), static_cast<off_t>(text.size()))) > 0;) {
      text.append(piece, static_cast<size_t>(bytes));
    }
    return std::istringstream(std::move(text));
  }

 private:
  const int descriptor_;
};

// "VmRSS:     1234 kB" of /proc/self/status.
void ReadStatus(ProcessUsage& usage) {
  static const OwnFile status("/proc/self/status");
  std::istringstream file = status.Read();
  for (std::string key; file >> key;) {
    uint64_t value = 0;
    if (key == "VmRSS:" && file >> value) usage.resident_bytes = value * 1024;
    if (key == "VmSwap:" && file >> value) usage.swap_bytes = value * 1024;
    if (key == "VmSize:" && file >> value) usage.virtual_bytes = value * 1024;
    if (key == "Threads:" && file >> value) usage.threads = static_cast<int>(value);
    std::string rest;
    std::getline(file, rest);
  }
}

// Since the epoch. Where a unit has ProcSubset=pid there is no /proc/stat.
double BootTimeSeconds() {
  const auto now = [](clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  return now(CLOCK_REALTIME) - now(CLOCK_BOOTTIME);
}

// Fields 14, 15 (user and system time) and 22 (start) of /proc/self/stat, in clock ticks; the name in field 2 may hold spaces.
void ReadTimes(ProcessUsage& usage) {
  static const OwnFile stat("/proc/self/stat");
  std::istringstream file = stat.Read();
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return;
  std::istringstream fields(line.substr(name_end + 1));
  std::vector<std::string> values;  // values[0] is field 3
  for (std::string value; fields >> value;) values.push_back(value);
  if (values.size() < 20) return;
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  usage.cpu_seconds = (std::stod(values[11]) + std::stod(values[12])) / ticks;
  static const double boot_time_seconds = BootTimeSeconds();
  usage.start_time_seconds = boot_time_seconds + std::stod(values[19]) / ticks;
}

int CountOpenFiles() {
  static absl::Mutex mutex(absl::kConstInit);
  static DIR* const directory = opendir("/proc/self/fd");  // stays open, too
  if (directory == nullptr) return 0;
  absl::MutexLock lock(&mutex);
  rewinddir(directory);
  int entries = 0;
  while (readdir(directory) != nullptr) ++entries;
  return entries - 2;  // "." and ".."
}

}  // namespace

ProcessUsage ReadProcessUsage() {
  ProcessUsage usage;
  ReadStatus(usage);
  ReadTimes(usage);
  usage.open_files = CountOpenFiles();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) usage.max_files = limit.rlim_cur;
  return usage;
}

// What is read stays open from here on.
ProcessMetrics::ProcessMetrics() { ReadProcessUsage(); }

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  const ProcessUsage usage = ReadProcessUsage();
  MetricFamilies families;
  AddCounter(families, "process_cpu_seconds_total", "User and system time.", usage.cpu_seconds);
  AddGauge(families, "process_resident_memory_bytes", "Resident set.", static_cast<double>(usage.resident_bytes));
  AddGauge(families, "process_swap_memory_bytes", "Swapped out.", static_cast<double>(usage.swap_bytes));
  AddGauge(families, "process_virtual_memory_bytes", "Virtual memory.", static_cast<double>(usage.virtual_bytes));
  AddGauge(families, "process_start_time_seconds", "Start, since the epoch.", usage.start_time_seconds);
  AddGauge(families, "process_threads", "Threads.", usage.threads);
  AddGauge(families, "process_open_fds", "Open file descriptors.", usage.open_files);
  AddGauge(families, "process_max_fds", "Limit on open file descriptors.", static_cast<double>(usage.max_files));
  auto& sandbox = AddFamily(families, "moe_sandbox", "The version of Landlock's interface, and 1 with seccomp; 0: not in force.",
                            prometheus::MetricType::Gauge);
  AddSample(sandbox, SandboxInForce().landlock, {{"by", "landlock"}});
  AddSample(sandbox, SandboxInForce().seccomp ? 1 : 0, {{"by", "seccomp"}});
  return families;
}

}  // namespace moed
