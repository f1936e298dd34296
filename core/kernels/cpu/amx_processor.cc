// What the table of tile instructions asks of the processor and of Linux.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "core/kernels/kernel_table.h"

namespace moed {

bool ProcessorHasAmxInt8() {
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kTile) != 0 && (edx & kInt8) != 0;
}

int AskForTiles() {
  constexpr int kAskPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const int error = syscall(SYS_arch_prctl, kAskPermission, kTileData) == 0 ? 0 : errno;
  return error;
}

}  // namespace moed
