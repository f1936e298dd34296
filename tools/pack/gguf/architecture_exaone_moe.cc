// exaone-moe (K-EXAONE): norms of each head, sigmoid scores with a correction, leading dense layers, a shared expert. Heads turn
// in the layers with a window alone.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/model/decoder_config.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "exaone_moe", {.window = true, .gating = true, .weights_scale = true});
  const int window = reader.Int("attention.sliding_window", 1, INT32_MAX);
  std::vector<int> windows;
  for (const bool slides : reader.LayersOr("attention.sliding_window_pattern", spec.layers, 4)) {
    windows.push_back(slides ? window : 0);
  }
  if (std::ranges::count(windows, window) > 0) spec.windows = std::move(windows);
  RotateWindowsAlone(spec);
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  ReadFfnWidths(reader, spec);
  spec.shared_ffn = reader.IntOr("expert_shared_count", 1, 0, kMostShared) * spec.expert_ffn;
  spec.shared_ffn = reader.IntOr("expert_shared_feed_forward_length", spec.shared_ffn, 0, 1 << 20);
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
  ReadGroupedSigmoid(reader, spec);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture ExaoneMoeArchitecture() { return {.name = "exaone-moe", .model_type = "exaone_moe", .read_spec = ReadSpec}; }

}  // namespace moed
