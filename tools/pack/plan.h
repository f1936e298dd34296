// What becomes of which tensor: everything about a pack that is known before the first weight is read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/spec.h"
#include "core/quant/encoding.h"
#include "core/store/description.h"
#include "core/store/layout.h"
#include "tools/pack/checkpoint.h"
#include "tools/pack/encoder.h"

namespace moed {

// Without a value: kept as the checkpoint has it, exactly.
using EncodingOrKeep = std::optional<Encoding>;
inline constexpr std::string_view kKeep = "keep";
// kKeep, or as ParseEncoding reads it.
absl::StatusOr<EncodingOrKeep> ParseEncodingOrKeep(std::string_view text);

// Where nothing is said: a GGUF and what was quantised are kept, all other weights become q8.
EncodingOrKeep DefaultEncoding(const Checkpoint& checkpoint);

struct PackEncodings {
  std::vector<EncodingOrKeep> experts;  // by precision; the first is the reference. No format twice
  EncodingOrKeep trunk = Encoding{FormatId::kQ8};
  int coded = 0;  // the experts' records, losslessly, where that saves so many percent of a part; 0 = not
};
// INVALID_ARGUMENT for a format that is there twice, as far as it is known without a checkpoint; MakePlan knows what kKeep is.
absl::Status CheckNoFormatTwice(std::span<const EncodingOrKeep> experts);
using PartTargets = std::array<MatrixTarget, kExpertParts>;

struct PackPlan {
  ModelSpec spec;
  StoreDescription description;
  FileLayout layout;
  std::vector<const SourceTensor*> trunk;      // by trunk tensor; null for rope.inv_freq and expert_norms, which are computed
  std::vector<MatrixTarget> trunk_targets;     // by trunk tensor; of vectors they say nothing
  std::vector<Spelling> trunk_spellings;       // by trunk tensor
  std::vector<HeadFactor> trunk_head_factors;  // by trunk tensor
  std::vector<ExpertPart> parts;               // that an expert has, in record order
  std::vector<const SourceTensor*> experts;    // [MoE layer][expert][one of these parts]
  std::vector<std::vector<PartTargets>> expert_targets;  // [precision][MoE layer]
  uint64_t tokenizer_bytes = 0;                          // Tokenizer::memory_bytes, once it is read from the store
  uint64_t chat_template_bytes = 0;                      // of its text
  std::vector<std::string> unknown_in_template;          // names that it has and moed does not know, by line
  uint64_t identity = 0;  // of the weight files, encoder and quantizers; the description says the rest

  const SourceTensor& ExpertSource(size_t moe_layer, int expert, ExpertPart part) const {
    const auto place = static_cast<size_t>(std::ranges::find(parts, part) - parts.begin());
    return *experts[(moe_layer * description.experts_per_layer + expert) * parts.size() + place];
  }
  // Of every expert of the layer.
  const MatrixTarget& ExpertTarget(size_t precision, size_t moe_layer, ExpertPart part) const {
    return expert_targets[precision][moe_layer][static_cast<size_t>(part)];
  }
  uint64_t piece_bytes() const;  // everything that has to be written but padding and header
};

inline constexpr std::string_view kInverseFrequencies = "rope.inv_freq";

// INVALID_ARGUMENT naming file, tensor, expected and found when the checkpoint's tensors are not exactly those of its family.
absl::StatusOr<PackPlan> MakePlan(const Checkpoint& checkpoint, const PackEncodings& encodings);

// 1 / theta^(2i/head_dim) as Hugging Face computes it in float32, (head_dim / 2).
std::vector<float> InverseFrequencies(double theta, int head_dim);
// The same, scaled.
std::vector<float> InverseFrequencies(double theta, int head_dim, const std::optional<YarnScaling>& yarn);
std::vector<float> InverseFrequencies(double theta, int head_dim, const FrequencyDivisors& divided);
// Those of all rotations of the model, one after the other.
std::vector<float> InverseFrequencies(const ModelSpec& spec);

}  // namespace moed
