// Addresses of the stand-in's device memory: those of the host's memory beneath it with one more bit, so that no address of the
// host has it and the host cannot follow the pointer by mistake.
#pragma once

#include <cstdint>

namespace moed::emulation {

inline constexpr uintptr_t kDeviceBit = uintptr_t{1} << 54;  // beyond virtual addresses, below the tags that arm64 ignores

}  // namespace moed::emulation
