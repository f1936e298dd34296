// nemotron_h_moe (Nemotron-3-Nano): each layer is one block. One of a width is a feed-forward block, one of heads of keys and
// values attention, any other Mamba-2. The converter has no key for how long a text may be and writes 2^20.
#include <algorithm>
#include <array>
#include <utility>

#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/mamba2.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

// Each block has one norm.
constexpr auto kNames = [] {
  std::array<GgufName, std::size(kGgufMamba2Names) + 1> names = {GgufName{"ffn_norm", "attn_norm.weight"}};
  std::ranges::copy(kGgufMamba2Names, names.begin() + 1);
  return names;
}();

void ReadBlocks(GgufSpecReader& reader, ModelSpec& spec) {
  const std::vector<int> widths = reader.Ints("feed_forward_length", static_cast<size_t>(spec.layers), 0, 1 << 20);
  for (int layer = 0; layer < spec.layers; ++layer) {
    spec.mixers.push_back(widths[layer] == 0);
    if (widths[layer] > 0) spec.recurrent[layer] = false;
  }
}

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec =
      ReadGgufDecoder(reader, "nemotron_h", {.gating = true, .weights_scale = true, .unrotated = true, .recurrent = true});
  ReadBlocks(reader, spec);
  ReadGgufMamba2(reader, spec);
  spec.activation = Activation::kSquaredRelu;
  spec.expert_ffn = reader.Int("expert_feed_forward_length", 1, 1 << 20);
  spec.shared_ffn = reader.Int("expert_shared_feed_forward_length", 1, 1 << 20);
  ReadGroupedSigmoid(reader, spec);
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
  // What the width of the shared expert says already, and the epsilon of layers that predict further tokens.
  reader.IntOr("expert_shared_count", 1, 0, INT32_MAX);
  reader.NumberOr("attention.layer_norm_epsilon", 1e-5, 0, 1);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture NemotronHMoeArchitecture() {
  return {.name = "nemotron_h_moe",
          .model_type = "nemotron_h",
          .read_spec = ReadSpec,
          .own_names = kNames,
          .pairs_neighbours = true,  // so the converter writes them, although no head turns
          .parts = GgufMamba2Parts};
}

}  // namespace moed
