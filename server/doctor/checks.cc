// The table of checks, in the order in which they are told.
#include "server/doctor/check.h"

namespace moed {
namespace {

constexpr Check kChecks[] = {
    {"processor", "processor", LookAtProcessor},
    {"memory_bandwidth", "memory bandwidth", LookAtMemoryBandwidth},
    {"memory_limit", "memory limit", LookAtMemoryLimit},
    {"swap", "swap", LookAtSwap},
    {"huge_pages", "huge pages", LookAtHugePages},
    {"locked_memory", "locked memory", LookAtLockedMemory},
    {"io_uring", "io_uring", LookAtIoUring},
    {"direct_io", "O_DIRECT", LookAtDirectIo},
    {"disk_bandwidth", "disk bandwidth", LookAtDiskBandwidth},
    {"sandbox", "sandbox", LookAtSandbox},
    {"cuda", "CUDA", LookAtCuda},
};

}  // namespace

std::string_view CheckStateName(CheckState state) {
  constexpr std::string_view kNames[] = {"ok", "slower", "unavailable"};
  return kNames[static_cast<int>(state)];
}

std::span<const Check> Checks() { return kChecks; }

}  // namespace moed
