#include "server/sandbox/landlock.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "core/base/status.h"

namespace moed {
namespace {

// linux/landlock.h of Debian 12 ends with version 2.
constexpr uint64_t kTruncate = uint64_t{1} << 14, kControlDevice = uint64_t{1} << 15;
constexpr uint64_t kBindTcp = 1, kConnectTcp = 2;
constexpr uint64_t kAbstractSockets = 1, kSignals = 2;
constexpr auto kPortRule = static_cast<landlock_rule_type>(2);

struct Ruleset {  // landlock_ruleset_attr of version 6
  uint64_t files = 0, ports = 0, scopes = 0;
};
struct Port {  // landlock_net_port_attr
  uint64_t allowed, port;
};

constexpr uint64_t kReadFile = LANDLOCK_ACCESS_FS_READ_FILE;
constexpr uint64_t kRead = kReadFile | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kWriteFile = LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
constexpr uint64_t kWrite = kRead | kWriteFile | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |
                            LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_FILE;
constexpr uint64_t kOfFiles = kReadFile | kWriteFile | kControlDevice;  // the others are rights of folders alone

Ruleset WhatIsRefused(const LandlockRules& rules, int version) {
  Ruleset refused;
  refused.files = (uint64_t{1} << 13) - 1;  // all of version 1
  if (version >= 2) refused.files |= LANDLOCK_ACCESS_FS_REFER;
  if (version >= 3) refused.files |= kTruncate;
  if (version >= 4) refused.ports = (rules.any_listening_port ? 0 : kBindTcp) | (rules.connects ? 0 : kConnectTcp);
  if (version >= 5) refused.files |= kControlDevice;
  if (version >= 6) refused.scopes = rules.abstract_sockets ? kSignals : kSignals | kAbstractSockets;
  return refused;
}

size_t BytesOf(int version) { return version >= 6 ? sizeof(Ruleset) : version >= 4 ? 2 * sizeof(uint64_t) : sizeof(uint64_t); }

constexpr std::string_view kOwnThreads = "/proc/self/task";

absl::Status Allow(int ruleset, const std::vector<std::string>& paths, uint64_t rights) {
  for (const std::string& path : paths) {
    const int fd = open(path.c_str(), O_PATH | O_CLOEXEC);
    if (fd < 0) continue;  // whoever needs it finds that out, and says so
    struct stat info {};
    landlock_path_beneath_attr rule{.allowed_access = rights, .parent_fd = fd};
    if (fstat(fd, &info) == 0 && !S_ISDIR(info.st_mode)) rule.allowed_access &= kOfFiles;
    const long added = syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    const int reason = errno;
    // A rule is of the inode, and /proc makes another one once nobody holds it.
    const bool kept = path == kOwnThreads;
    if (!kept) close(fd);
    if (added != 0) return ErrnoError(reason, "Landlock refuses a rule for ", path);
  }
  return absl::OkStatus();
}

absl::Status AddRules(int ruleset, const LandlockRules& rules, const Ruleset& refused) {
  MOED_RETURN_IF_ERROR(Allow(ruleset, rules.readable, kRead));
  MOED_RETURN_IF_ERROR(Allow(ruleset, rules.writable, kWrite & refused.files));
  MOED_RETURN_IF_ERROR(Allow(ruleset, rules.devices, (kRead | kWriteFile | kControlDevice) & refused.files));
  if ((refused.ports & kBindTcp) == 0) return absl::OkStatus();
  std::vector<int> ports = rules.listening_ports;
  // gRPC's clients look for IPv6 by binding a socket to any free port of ::1.
  if (rules.connects) ports.push_back(0);
  for (const int port : ports) {
    const Port rule{kBindTcp, static_cast<uint64_t>(port)};
    if (syscall(SYS_landlock_add_rule, ruleset, kPortRule, &rule, 0) != 0)
      return ErrnoError(errno, "Landlock refuses a rule for port ", port);
  }
  return absl::OkStatus();
}

absl::Status Restrict(int ruleset) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return ErrnoError(errno, "the kernel refuses no_new_privs");
  if (syscall(SYS_landlock_restrict_self, ruleset, 0) != 0) return ErrnoError(errno, "Landlock does not take the rules");
  return absl::OkStatus();
}

}  // namespace

int LandlockVersion() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return version < 0 ? 0 : static_cast<int>(version);
}

absl::Status FenceByLandlock(const LandlockRules& rules, int version) {
  const Ruleset refused = WhatIsRefused(rules, version);
  const auto ruleset = static_cast<int>(syscall(SYS_landlock_create_ruleset, &refused, BytesOf(version), 0));
  if (ruleset < 0) return ErrnoError(errno, "Landlock refuses a set of rules");
  absl::Status status = AddRules(ruleset, rules, refused);
  if (status.ok()) status = Restrict(ruleset);
  close(ruleset);
  return status;
}

}  // namespace moed
