#include "server/sandbox/sandbox.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <netinet/in.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_split.h"
#include "core/base/status.h"
#include "server/sandbox/landlock.h"
#include "server/sandbox/system_calls.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

namespace fs = std::filesystem;

// By C and other libraries, while the program runs. Of /etc no more than is named: it has others' keys.
constexpr const char* kReadByAll[] = {"/usr",
                                      "/lib",
                                      "/lib64",
                                      "/proc",
                                      "/sys",
                                      "/dev/zero",
                                      "/dev/urandom",
                                      "/dev/random",
                                      "/etc/gai.conf",
                                      "/etc/host.conf",
                                      "/etc/hosts",
                                      "/etc/ld.so.cache",
                                      "/etc/localtime",
                                      "/etc/nsswitch.conf",
                                      "/etc/resolv.conf",
                                      "/etc/services",
                                      "/etc/ssl/certs",
                                      "/etc/ssl/openssl.cnf"};
// Drivers from 570 on name their threads when they start, and do not start where they may not.
constexpr const char* kDevices[] = {"/dev/nvidia*", "/dev/nvgpu",   "/dev/nvhost*", "/dev/nvmap",     "/dev/nvsciipc*",
                                    "/dev/dri",     "/dev/host1x*", "/dev/dxg",     "/proc/self/task"};

SandboxState state;  // written before there are threads

// The folder that a name lies in, and that of what it stands for where it is a link.
std::vector<fs::path> FoldersOf(const std::string& file) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const fs::path& path : {fs::path(file), fs::canonical(file, error)}) {
    if (!path.empty()) folders.push_back(path.has_parent_path() ? path.parent_path() : ".");
  }
  return folders;
}

bool IsRoot(const fs::path& folder) {
  std::error_code error;
  return fs::equivalent(folder, "/", error);
}

absl::Status AddWritable(const fs::path& folder, const std::string& named, LandlockRules& rules) {
  if (IsRoot(folder)) {
    return FailedPrecondition("--sandbox: ", named,
                              " would have everything beneath / written: put it into a folder of its own, "
                              "or say --sandbox off");
  }
  rules.writable.push_back(folder.string());
  return absl::OkStatus();
}

// A folder that is not there yet is made in what is there of it.
absl::Status AddWritableFolder(const std::string& named, LandlockRules& rules) {
  fs::path folder = named;
  std::error_code error;
  while (!fs::exists(folder, error) && folder.has_parent_path() && folder != folder.parent_path()) folder = folder.parent_path();
  return AddWritable(folder.empty() || !fs::exists(folder, error) ? "." : folder, named, rules);
}

// Else the host's name may stand for several addresses: the second one is bound to whatever port the first one got.
bool IsNumeric(const std::string& host) {
  in6_addr parsed;
  return inet_pton(AF_INET, host.c_str(), &parsed) == 1 || inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

void AddReadable(const std::string& file, LandlockRules& rules) {
  for (const fs::path& folder : FoldersOf(file)) rules.readable.push_back(IsRoot(folder) ? file : folder.string());
}

// The driver's library, from wherever the loader finds it: it loads others of its folder later. It stays loaded.
void AddDriver(LandlockRules& rules) {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  link_map* loaded = nullptr;
  if (driver == nullptr || dlinfo(driver, RTLD_DI_LINKMAP, &loaded) != 0) return;
  AddReadable(loaded->l_name, rules);
}

std::string VariableOr(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

// What a driver's library makes files in: memory that processes share, pipes to MPS, and, where it is named, what was compiled.
absl::Status AddWrittenByDriver(LandlockRules& rules) {
  rules.writable.emplace_back("/dev/shm");
  const std::string pipes = VariableOr("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps");
  MOED_RETURN_IF_ERROR(AddWritable(pipes, pipes, rules));
  const std::string compiled = VariableOr("CUDA_CACHE_PATH", "");
  return compiled.empty() ? absl::OkStatus() : AddWritableFolder(compiled, rules);
}

// Libraries that the environment names are loaded when a device is looked for.
absl::Status AddDevices(LandlockRules& rules) {
  AddDriver(rules);
  for (const char* pattern : kDevices) {
    glob_t found{};
    if (glob(pattern, 0, nullptr, &found) == 0)
      rules.devices.insert(rules.devices.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
  }
  rules.readable.emplace_back("/etc/nvidia");
  const std::vector<std::string> folders = absl::StrSplit(VariableOr("LD_LIBRARY_PATH", ""), ':', absl::SkipEmpty());
  rules.readable.insert(rules.readable.end(), folders.begin(), folders.end());
  return AddWrittenByDriver(rules);
}

absl::StatusOr<LandlockRules> RulesFor(const SandboxNeeds& needs) {
  LandlockRules rules{.readable = {std::begin(kReadByAll), std::end(kReadByAll)}, .writable = {"/dev/null"}};
  for (const std::string& file : needs.read_files) AddReadable(file, rules);
  rules.readable.insert(rules.readable.end(), needs.read_folders.begin(), needs.read_folders.end());
  for (const std::string& file : needs.write_files) {
    for (const fs::path& folder : FoldersOf(file)) MOED_RETURN_IF_ERROR(AddWritable(folder, file, rules));
  }
  for (const std::string& folder : needs.write_folders) MOED_RETURN_IF_ERROR(AddWritableFolder(folder, rules));
  for (const Address& address : needs.listens) {
    if (!address.path.empty()) continue;
    rules.listening_ports.push_back(address.port);
    rules.any_listening_port |= address.port == 0 && !IsNumeric(address.host);
  }
  if (needs.devices) MOED_RETURN_IF_ERROR(AddDevices(rules));
  rules.connects = needs.connects;
  const char* notices = std::getenv("NOTIFY_SOCKET");
  rules.abstract_sockets = notices != nullptr && *notices == '@';
  return rules;
}

SystemCallNeeds CallsOf(const SandboxNeeds& needs) { return {.io_uring = needs.io_uring, .devices = needs.devices}; }

}  // namespace

absl::StatusOr<SandboxRule> ParseSandboxRule(std::string_view text) {
  constexpr std::pair<std::string_view, SandboxRule> kRules[] = {
      {"on", SandboxRule::kOn}, {"off", SandboxRule::kOff}, {"require", SandboxRule::kRequire}};
  for (const auto& [name, rule] : kRules) {
    if (name == text) return rule;
  }
  return InvalidArgument("\"", text, "\"; allowed are: on, off, require");
}

SandboxState SandboxInForce() { return state; }

absl::Status EnterSandbox(SandboxRule rule, const SandboxNeeds& needs) {
  if (rule == SandboxRule::kOff) {
    spdlog::warn("sandbox: off (--sandbox)");
    return absl::OkStatus();
  }
  const int version = LandlockVersion();
  const absl::Status seccomp = CheckSeccomp();
  std::string lacking;
  if (version == 0) lacking = "the kernel has no Landlock (Linux 5.13, among lsm= of its command line), or a filter refuses it";
  if (!seccomp.ok()) lacking += StrCat(lacking.empty() ? "" : "; ", seccomp.message());
  if (rule == SandboxRule::kRequire && !lacking.empty()) return FailedPrecondition("--sandbox require: ", lacking);
  if (version > 0) {
    MOED_ASSIGN_OR_RETURN(const LandlockRules rules, RulesFor(needs));
    MOED_RETURN_IF_ERROR(FenceByLandlock(rules, version));
    state.landlock = version;
  }
  if (seccomp.ok()) {
    MOED_RETURN_IF_ERROR(FilterSystemCalls(CallsOf(needs)));
    state.seccomp = true;
  }
  if (!lacking.empty()) spdlog::warn("sandbox: {}", lacking);
  spdlog::info("sandbox: files and ports {}, system calls {}",
               version > 0 ? StrCat("by Landlock, version ", version) : "as they were",
               seccomp.ok() ? "by seccomp" : "as they were");
  return absl::OkStatus();
}

absl::Status GiveUpSockets(const SandboxNeeds& needs) {
  if (!state.seccomp) return absl::OkStatus();
  MOED_RETURN_IF_ERROR(FilterSockets(CallsOf(needs)));
  spdlog::info("sandbox: no new sockets from here on");
  return absl::OkStatus();
}

}  // namespace moed
