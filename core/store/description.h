// What a store holds, as plain data: given to the writer, returned by the reader.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "core/base/ids.h"
#include "core/quant/format.h"

namespace moed {

inline constexpr uint64_t kStoreAlignment = 4096;
inline constexpr uint64_t kTensorAlignment = 64;

// Matrices are packed (quant/format.h); vectors (rows = 1) are plain float32 in the order of their elements and have `vector`
// set.
struct TensorInfo {
  std::string name;
  FormatId format = FormatId::kF32;
  bool vector = false;
  int rows = 0;
  int cols = 0;
  uint64_t offset = 0;  // from the start of the trunk segment, 64-byte aligned
  uint64_t bytes = 0;
};

// The matrices that experts may have, in record order: compute can start once gate and up are there. All experts of a store have
// the same ones.
enum class ExpertPart : uint8_t { kGate = 0, kUp = 1, kDown = 2 };
inline constexpr int kExpertParts = 3;
inline constexpr int kLeastExpertParts = 2;  // without a gate

struct ExpertSegment {
  ExpertPart part = ExpertPart::kGate;
  FormatId format = FormatId::kF32;
  int rows = 0;
  int cols = 0;
  uint64_t offset = 0;  // from the start of the record; multiple of 4096
  uint64_t bytes = 0;   // without padding
};

// Of every record of a MoE layer at one precision.
struct ExpertLayout {
  absl::InlinedVector<ExpertSegment, kExpertParts> segments;  // gate, up, down; up and down where there are no gates
  uint64_t record_bytes = 0;                                  // with padding; multiple of 4096

  // Null: the experts have no such part.
  const ExpertSegment* Find(ExpertPart part) const {
    const auto at = std::find_if(segments.begin(), segments.end(), [part](const ExpertSegment& s) { return s.part == part; });
    return at == segments.end() ? nullptr : &*at;
  }
};

// Shapes are the same in every layer and at every precision; formats may differ by layer and by part, and so may sizes.
struct ExpertPrecision {
  std::vector<ExpertLayout> layers;  // as many as MoE layers, in their order
};

// Plain description of a store; what the writer is given and the reader returns.
struct StoreDescription {
  std::string model_spec;           // opaque here; canonical JSON written by the model module
  std::vector<LayerId> moe_layers;  // ascending
  int experts_per_layer = 0;
  std::vector<ExpertPrecision> precisions;  // index = Precision; 0 is the reference
  std::vector<TensorInfo> trunk;
  uint64_t trunk_bytes = 0;  // with padding
  std::string tokenizer;     // opaque here; compiled by the tokenizer module
  // Of coded records (coding.h): bytes that each expert segment has in the file, by expert piece (layout.h); as many as the
  // segment has where it is kept as it is. Empty: records are as they are in memory.
  std::vector<uint64_t> coded_bytes;
  bool coded() const { return !coded_bytes.empty(); }
};

}  // namespace moed
