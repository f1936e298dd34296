#include "server/startup/device_nodes.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spdlog/spdlog.h"

namespace moed {
namespace {

constexpr char kProgram[] = "/usr/bin/nvidia-modprobe";

bool Missing(const char* file) { return access(file, F_OK) != 0; }

}  // namespace

void MakeDeviceNodes(const Config& config) {
  if (config.backend != "cuda" || access(kProgram, X_OK) != 0) return;
  if (!Missing("/dev/nvidiactl") && !Missing("/dev/nvidia-uvm")) return;
  char name[] = "nvidia-modprobe", first_device[] = "-c=0", memory[] = "-u";
  char* const arguments[] = {name, first_device, memory, nullptr};
  pid_t child = 0;
  int status = -1;
  if (posix_spawn(&child, kProgram, nullptr, nullptr, arguments, environ) == 0) waitpid(child, &status, 0);
  spdlog::info("ran {} for the device's files: status {}", kProgram, status);
}

}  // namespace moed
