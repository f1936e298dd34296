// GGUF architectures as rows of one table: which family runs one, how the metadata becomes a ModelSpec, and what the file calls
// the store's tensors. An architecture is one file (architecture_llama.cc, ...) and one row.
//
// GGUF names tensors alike in all architectures, so one table of names serves them (architecture.cc); a row holds what departs
// from it. All of this stands here and not in the families' own rows: the model knows nothing of file formats but config.json.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/model/family.h"
#include "core/model/spec.h"
#include "core/store/description.h"
#include "tools/pack/gguf/split.h"

namespace moed {

// The store's name and the file's, both without "layers.N." and "blk.N.": {"q_norm", "attn_q_norm.weight"}.
using GgufName = std::pair<std::string_view, std::string_view>;

struct GgufArchitecture {
  std::string_view name;        // the value of general.architecture: "qwen3moe"
  std::string_view model_type;  // of the family that runs it
  // INVALID_ARGUMENT naming the key, or a key that nobody understands.
  absl::StatusOr<ModelSpec> (*read_spec)(const GgufModel& model);
  std::span<const GgufName> own_names = {};  // before the common ones
  // Rows of q and k stand as RoPE's neighbouring pairs; moed's RoPE pairs the halves of a head.
  bool pairs_neighbours = false;
  std::span<const std::string_view> more_model_types = {};  // whose models are files of this architecture too
  // Tensors that a file may have as parts of others, by names like the file's. Null: none.
  std::vector<TensorPart> (*parts)(const ModelSpec& spec) = nullptr;
  std::span<const std::string_view> of_spec = {};  // tensors that read_spec reads

  bool Runs(std::string_view family) const;  // by its model_type
  // "layers.3.q" -> "blk.3.attn_q.weight". Several: the first that a file has. Empty for a tensor that has no name in GGUF files.
  std::vector<std::string> TrunkNames(std::string_view store_name) const;
};

std::span<const GgufArchitecture> GgufArchitectures();
// By the metadata's general.architecture. INVALID_ARGUMENT lists the known ones.
absl::StatusOr<const GgufArchitecture*> ArchitectureOf(const GgufMetadata& metadata);

constexpr int kMostFurtherGgufLayers = 64;
// Whether a tensor belongs to a layer behind the last one: as many as nextn_predict_layers says predict further tokens.
bool PredictsFurther(const GgufModel& model, const ModelSpec& spec, std::string_view tensor_name);

// The experts of a layer are one tensor of shape (experts, rows, columns) for each part: "blk.3.ffn_gate_exps.weight".
std::string GgufExpertsName(LayerId layer, ExpertPart part);
// One expert of it: "blk.3.ffn_gate_exps.weight[17]".
std::string GgufExpertName(LayerId layer, int expert, ExpertPart part);
// The same from the name that the first files with experts gave each of them, "blk.3.ffn_gate.17.weight"; others stay.
std::string CurrentGgufName(std::string_view tensor_name);

// Where the rows of q and k that halves pair lie among rows that neighbours pair: [heads * head_dim].
std::vector<uint32_t> NeighbourPairsOrder(int heads, int head_dim);

}  // namespace moed
