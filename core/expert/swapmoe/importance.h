// SwapMoE, arXiv 2308.15030, 3.2, equation 2: what each expert would have contributed, whether it is in memory or not, and the
// set of a layer's experts that follows from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace moed {

enum class SwapMoeScore : uint8_t {
  kMagnitude,  // sum over the expert's tokens of |x| G(x) |E|
  kTokens,     // number of the expert's tokens: the ablation of 5.5
};

// Of all experts of all layers. Not synchronised.
class SwapMoeImportance {
 public:
  // `norms` (layers, experts). An expert's tokens are those whose unmasked router has it among the top k.
  SwapMoeImportance(int experts, int top_k, std::vector<float> norms, SwapMoeScore score);

  // One token at one layer: the gate's input and the router's logits (experts), unmasked. G is their softmax.
  void Add(int layer, std::span<const float> hidden, std::span<const float> logits);
  // What was seen until now counts `share` of itself.
  void Fade(int layer, double share);

  double Of(int layer, int expert) const { return sums_[At(layer, expert)]; }
  float Norm(int layer, int expert) const { return norms_[At(layer, expert)]; }

  // The `slots` most important of a layer to `set` (experts, 0 or 1). Of equals the one that is in `set` already, then the larger
  // norm, then the lower number.
  void ChooseSet(int layer, int slots, std::span<uint8_t> set);
  // Those of the largest norms, whatever their importance.
  void ChooseByNorm(int layer, int slots, std::span<uint8_t> set);

  size_t memory_bytes() const { return Bytes(sums_.size(), order_.size()); }
  static size_t Bytes(size_t all_experts, size_t experts_per_layer) {
    return all_experts * (sizeof(double) + sizeof(float)) + experts_per_layer * sizeof(int32_t);
  }

 private:
  template <class Rank>
  void ChooseFirst(int slots, std::span<uint8_t> set, const Rank& rank);
  size_t At(int layer, int expert) const { return static_cast<size_t>(layer) * experts_ + static_cast<size_t>(expert); }

  const size_t experts_;
  const size_t top_k_;
  const SwapMoeScore score_;
  const std::vector<float> norms_;
  std::vector<double> sums_;
  std::vector<int32_t> order_;  // scratch (experts)
};

}  // namespace moed
