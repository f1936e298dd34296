// What this process gives up: files, ports and system calls that it does not need are refused to all of it, for good.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/address.h"

namespace moed {

// Of --sandbox. kOn takes what the kernel has and warns of what it lacks.
enum class SandboxRule : uint8_t { kOff, kOn, kRequire };
// INVALID_ARGUMENT says what is allowed.
absl::StatusOr<SandboxRule> ParseSandboxRule(std::string_view text);

// Beside what every program reads: libraries, /proc, /sys, what names of hosts are looked up in.
struct SandboxNeeds {
  std::vector<std::string> read_files;  // others may come in their place: all of their folders can be read
  std::vector<std::string> read_folders;
  std::vector<std::string> write_files;  // likewise, with files beside them
  std::vector<std::string> write_folders;
  std::vector<Address> listens;
  bool connects = false;  // over TCP, at any time
  bool io_uring = false;
  bool devices = false;  // those of NVIDIA, with their driver's library
};

// What is in force of this process.
struct SandboxState {
  int landlock = 0;      // the version of its interface; 0: nothing is fenced
  bool seccomp = false;  // system calls are filtered
};
SandboxState SandboxInForce();

// Before the process has other threads. Logs what is in force. FAILED_PRECONDITION names what the kernel lacks (kRequire), and a
// file to be written that lies in "/", beside which everything else would be writable.
absl::Status EnterSandbox(SandboxRule rule, const SandboxNeeds& needs);
// Once it listens: no new sockets, for all threads. Nothing where EnterSandbox took no seccomp.
absl::Status GiveUpSockets(const SandboxNeeds& needs);

}  // namespace moed
