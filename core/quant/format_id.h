// The weight formats by number. Plain data only: files compiled for one instruction set include this.
#pragma once

#include <stdint.h>

namespace moed {

inline constexpr int kPanelRows = 8;
inline constexpr int kBlockColumns = 32;

// Stored in files: never renumber. A new one stands before kEnd; whatever table lacks it does not compile.
enum class FormatId : uint8_t { kF32 = 0, kF16 = 1, kBF16 = 2, kQ8 = 3, kQ4 = 4, kQ2 = 5, kQ4A = 6, kQ3 = 7, kEnd };
inline constexpr int kFormatCount = static_cast<int>(FormatId::kEnd);

}  // namespace moed
