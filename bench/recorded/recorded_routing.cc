#include "bench/recorded/recorded_routing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bench/recorded/recorded_provider.h"
#include "core/base/status.h"

namespace moed {
namespace {

// 0 to 1, the same for the same number (splitmix64).
double Draw(uint64_t number) {
  uint64_t z = number * 0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordedRouting>> RecordedRouting::Create(RoutingTrace trace, std::optional<double> gate_recall) {
  if (gate_recall && !(*gate_recall >= 0 && *gate_recall <= 1)) {
    return InvalidArgument("gate recall ", *gate_recall, ": allowed is 0 to 1");
  }
  if (gate_recall && 2 * trace.shape.top_k > trace.shape.experts) {
    return InvalidArgument("gate recall: top-", trace.shape.top_k, " of ", trace.shape.experts,
                           " leaves too few others to choose");
  }
  if (trace.tokens() > kMostTicketTokens) {
    return InvalidArgument("the trace has ", trace.tokens(), " tokens: allowed are ", kMostTicketTokens);
  }
  return std::unique_ptr<RecordedRouting>(new RecordedRouting(std::move(trace), gate_recall));
}

RecordedRouting::RecordedRouting(RoutingTrace trace, std::optional<double> gate_recall)
    : trace_(std::move(trace)), gate_recall_(gate_recall) {}

absl::Status RecordedRouting::Check(const StoreDescription& store, const ModelSpec& spec, const PresetSetup& preset) const {
  const RoutingShape& shape = trace_.shape;
  if (store.moe_layers != shape.layers || spec.top_k != shape.top_k || spec.experts != shape.experts) {
    return InvalidArgument("recorded routing is of ", shape.layers.size(), " layers, top-", shape.top_k, " of ", shape.experts,
                           " experts; the store has ", store.moe_layers.size(), ", top-", spec.top_k, " of ", spec.experts);
  }
  if (spec.router_scoring != RouterScoring::kSoftmax || spec.router_correction || spec.router_groups != 1) {
    return InvalidArgument("recorded routing can replace a softmax router without groups and correction only");
  }
  if (preset.mask->name != "none") {
    return InvalidArgument("router mask ", preset.mask->name,
                           " asks for all logits; recorded routing has the chosen experts' alone");
  }
  return absl::OkStatus();
}

GateFn RecordedRouting::gate() const {
  if (!gate_recall_) return nullptr;
  return [this](LayerId layer, std::span<const float> ticket, std::span<float> probabilities) {
    AnswerGate(layer, ticket, probabilities);
  };
}

std::unique_ptr<ExpertProvider> RecordedRouting::Before(ExpertProvider& next) {
  return std::make_unique<RecordedProvider>(trace_, next);
}

// Who replaces a choice takes its weight. Experts that nobody named have 0.
void RecordedRouting::AnswerGate(LayerId layer, std::span<const float> ticket, std::span<float> probabilities) const {
  const auto position = static_cast<int>(std::ranges::lower_bound(trace_.shape.layers, layer) - trace_.shape.layers.begin());
  const double recall = std::pow(*gate_recall_, position - ticket[1]);
  const auto first = static_cast<size_t>(trace_.At(static_cast<size_t>(ticket[0]), position));
  const auto choices = std::span(trace_.experts).subspan(first, static_cast<size_t>(trace_.shape.top_k));
  std::ranges::fill(probabilities, 0.f);
  for (size_t slot = 0; slot < choices.size(); ++slot) {
    const uint64_t number = 2 * (first + slot);
    size_t expert = choices[slot];
    if (Draw(number) >= recall) {
      expert = static_cast<size_t>(Draw(number + 1) * static_cast<double>(probabilities.size()));
      while (std::ranges::count(choices, expert) > 0 || probabilities[expert] > 0) expert = (expert + 1) % probabilities.size();
    }
    probabilities[expert] = std::max(static_cast<float>(trace_.probabilities[first + slot]), 0.5f) / 255;
  }
}

}  // namespace moed
