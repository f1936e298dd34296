// The weight formats by number. Plain data only: files compiled for one instruction set include this.
#pragma once

#include <stdint.h>

namespace moed {

inline constexpr int kPanelRows = 8;
inline constexpr int kBlockColumns = 32;  // of activations; a format's blocks are one, two, four or eight of them

// Stored in files: never renumber. A new one stands before kEnd; whatever table lacks it does not compile.
enum class FormatId : uint8_t {
  kF32 = 0,
  kF16 = 1,
  kBF16 = 2,
  kQ8 = 3,
  kQ4 = 4,
  kQ2 = 5,
  kQ4A = 6,
  kQ3 = 7,
  // Those of GGUF files, kept and not made.
  kQ5_0 = 8,
  kQ5_1 = 9,
  kQ2K = 10,
  kQ3K = 11,
  kQ4K = 12,
  kQ5K = 13,
  kQ6K = 14,
  kIq4Nl = 15,
  kIq4Xs = 16,
  kIq3S = 17,
  kMxfp4 = 18,
  // Those of safetensors whose weights were quantised before, kept and not made.
  kQ4Z = 19,
  kQ4Z128 = 20,
  kFp8 = 21,
  // With scales of a byte: of 2 bits, of pairs.
  kQ2S = 22,
  kQ2P = 23,
  // NVFP4, of safetensors and GGUF files, kept and not made.
  kNvfp4 = 24,
  kEnd
};
inline constexpr int kFormatCount = static_cast<int>(FormatId::kEnd);

}  // namespace moed
