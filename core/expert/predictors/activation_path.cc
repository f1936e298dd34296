#include "core/expert/predictors/activation_path.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/expert_index.h"
#include "core/expert/learning/activation_paths.h"
#include "core/expert/predictors/gate_guesses.h"

namespace moed {
namespace {

// Of a prompt, the last tokens of the step stand for all (ours).
constexpr size_t kPromptTokens = 16;

struct PathRule {
  int reach;         // layers of a key
  bool top_k_alone;  // else every expert that ever followed the key
};

// EdgeMoE: "sequentially preloads the experts ... prioritized with their estimated activation probability. The preloading stops
// until the router is finished": one after the other, whatever the probability; the cache drops those whose layer has come.
constexpr PathRule kEdgeMoe = {ActivationPaths::kReach, false};
// Fate names no threshold for it: as many as a layer chooses (ours).
constexpr PathRule kEap = {1, true};

constexpr size_t kExpertBytes = 2 * sizeof(float);  // of scratch

class PathPredictor final : public ExpertPredictor {
 public:
  // `paths` made offline; null: learned while serving.
  PathPredictor(const PartContext& context, std::shared_ptr<const ActivationPaths> paths, const PathRule& rule)
      : rule_(rule),
        index_(context.model.moe_layers, context.model.experts_per_layer, 1),
        top_k_(static_cast<size_t>(std::min(context.model.top_k, context.model.experts_per_layer))),
        paths_(std::move(paths)),
        probabilities_(static_cast<size_t>(context.model.experts_per_layer)),
        unused_(probabilities_.size()) {
    if (paths_ == nullptr) {
      learning_ =
          std::make_shared<ActivationPaths>(index_.layers(), index_.experts_per_layer(), rule.reach, context.model.table_bytes);
      paths_ = learning_;
    }
  }

  std::optional<PrefetchBudget> Budget(const ReadingPace&) const override { return PrefetchBudget{.max_loads = INT_MAX}; }

  void OnRouted(const LayerRouting& routing) override {
    const int position = index_.Position(routing.layer);
    size_t token_number = 0;
    tokens_.Advance(position, routing, [&](const TokenRouting& token, const PathKey& key, const ExpertSet& chosen) {
      const bool learns = token.phase == Phase::kDecode || token_number + kPromptTokens >= routing.tokens.size();
      ++token_number;
      if (learning_ == nullptr || !learns) return;
      learning_->Add(position, rule_.reach == 1 ? PathKey{{}, key.before} : key, chosen);
    });
  }

  void Predict(SequenceId sequence, LayerId from, std::vector<Guess>& best_first) override {
    const int position = index_.Position(from);
    if (tokens_.position() != position || position + 1 == index_.layers()) return;
    std::ranges::fill(unused_, 1.f);
    size_t tokens = 0;
    for (size_t i = tokens_.rows().size(); i-- > 0 && tokens < kPromptTokens;) {
      const TokenPaths::Row& row = tokens_.rows()[i];
      if (row.sequence != sequence) continue;
      ++tokens;
      paths_->Estimate(position + 1, rule_.reach == 1 ? PathKey{{}, row.next.before} : row.next, probabilities_);
      for (size_t e = 0; e < unused_.size(); ++e) unused_[e] *= 1 - probabilities_[e];
    }
    const size_t first = best_first.size();
    for (size_t e = 0; e < unused_.size(); ++e) {
      if (unused_[e] < 1) best_first.push_back({{index_.Layer(position + 1), static_cast<int32_t>(e)}, 1 - unused_[e], 1});
    }
    SortBestFirst(std::span(best_first).subspan(first));
    if (rule_.top_k_alone && tokens == 1) best_first.resize(std::min(best_first.size(), first + top_k_));
  }

  void Popularity(LayerId layer, std::span<float> of_experts) const override {
    paths_->Estimate(index_.Position(layer), {}, of_experts);
  }
  size_t memory_bytes() const override {
    const size_t learned = learning_ == nullptr ? 0 : learning_->memory_bytes();
    return learned + probabilities_.size() * kExpertBytes + tokens_.rows().size() * sizeof(TokenPaths::Row);
  }

 private:
  const PathRule rule_;
  const ExpertIndex index_;
  const size_t top_k_;
  std::shared_ptr<ActivationPaths> learning_;  // null where paths_ was made offline
  std::shared_ptr<const ActivationPaths> paths_;
  TokenPaths tokens_;  // of the step
  // Scratch. (experts)
  std::vector<float> probabilities_;
  std::vector<float> unused_;  // chance that none of the tokens uses it
};

absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakePathPredictor(const PartContext& context, const PartOptions& options,
                                                                   const PathRule& rule) {
  MOED_ASSIGN_OR_RETURN(std::shared_ptr<const ActivationPaths> paths, GivenPaths(context.model, options));
  return std::make_unique<PathPredictor>(context, std::move(paths), rule);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakeActivationPathPredictor(const PartContext& context,
                                                                             const PartOptions& options) {
  return MakePathPredictor(context, options, kEdgeMoe);
}
absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakeEapPredictor(const PartContext& context, const PartOptions& options) {
  return MakePathPredictor(context, options, kEap);
}

PartMemory PathPredictorMemory(const PartContext& context, const PartOptions& options) {
  const ExpertModelShape& model = context.model;
  const size_t scratch = static_cast<size_t>(model.experts_per_layer) * kExpertBytes;
  if (options.File<ActivationPaths>(kPathsOption) != nullptr) return {.fixed_bytes = scratch};
  return {
      .fixed_bytes = ActivationPaths::LeastBytes(static_cast<int>(model.moe_layers.size()), model.experts_per_layer) + scratch,
      .tables = 1,
      .most_table_bytes = UINT64_MAX};
}

}  // namespace moed
