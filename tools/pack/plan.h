// What becomes of which tensor: everything about a pack that is known before the first weight is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/spec.h"
#include "core/quant/encoding.h"
#include "core/store/description.h"
#include "core/store/layout.h"
#include "tools/pack/checkpoint.h"

namespace moed {

struct PackEncodings {
  std::vector<Encoding> experts;  // by precision; the first is the reference. No format twice
  Encoding trunk = {FormatId::kQ8};
};

struct PackPlan {
  ModelSpec spec;
  PackEncodings encodings;
  StoreDescription description;
  FileLayout layout;
  std::vector<const SourceTensor*> trunk;    // by trunk tensor; null for rope.inv_freq and expert_norms, which are computed
  std::vector<const SourceTensor*> experts;  // [MoE layer][expert][part]
  uint64_t identity = 0;                     // of the weight files, encoder and quantizers; the description says the rest

  const SourceTensor& ExpertSource(size_t moe_layer, int expert, ExpertPart part) const {
    return *experts[(moe_layer * description.experts_per_layer + expert) * kExpertParts + static_cast<size_t>(part)];
  }
  Encoding TrunkEncoding(size_t tensor) const;  // of a matrix
  uint64_t piece_bytes() const;                 // everything that has to be written but padding and header
};

inline constexpr std::string_view kInverseFrequencies = "rope.inv_freq";

// INVALID_ARGUMENT naming file, tensor, expected and found when the checkpoint's tensors are not exactly those of its family.
absl::StatusOr<PackPlan> MakePlan(const Checkpoint& checkpoint, const PackEncodings& encodings);

// 1 / theta^(2i/head_dim) as Hugging Face computes it in float32, (head_dim / 2).
std::vector<float> InverseFrequencies(double theta, int head_dim);

}  // namespace moed
