#include "core/expert/policies/hobbit_calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/expert_index.h"

namespace moed {
namespace {

constexpr int kSteps = 20;       // weights are multiples of 1 / kSteps
constexpr int kCoarseSteps = 5;  // of the first look at the whole simplex
constexpr double kHighCaches[] = {0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1};

using Point = std::array<int, 4>;  // lru, lfu, lhu, fld in 1 / kSteps

HobbitWeights WeightsAt(const Point& point) {
  const double unit = 1.0 / kSteps;
  return {point[0] * unit, point[1] * unit, point[2] * unit, point[3] * unit};
}

// A cache that reads what is wanted, and nothing else.
class PenaltyCache {
 public:
  PenaltyCache(const ExpertModelShape& model, const HobbitThresholds& thresholds, std::unique_ptr<EvictionPolicy> policy)
      : model_(model),
        index_(model.moe_layers, model.experts_per_layer, model.precisions),
        thresholds_(thresholds),
        low_(static_cast<Precision>(model.precisions - 1)),
        policy_(std::move(policy)),
        resident_(index_.size()) {}

  EvictionPolicy& policy() { return *policy_; }

  // What reading costs, in reads at the high precision.
  double Use(SequenceId sequence, int layer, std::span<const HobbitRouting::Choice> choices) {
    wanted_.clear();
    missing_.clear();
    for (const HobbitRouting::Choice& choice : choices) Want(sequence, {index_.Layer(layer), choice.expert}, choice.before);
    double penalty = 0;
    for (const CachedKey& key : missing_) {
      Load(key);
      penalty += static_cast<double>(Bytes(key)) / static_cast<double>(model_.record_bytes[kReferencePrecision]);
    }
    return penalty;
  }

 private:
  uint64_t Bytes(const CachedKey& key) const { return model_.record_bytes[key.precision]; }

  void Want(SequenceId sequence, ExpertKey expert, float before) {
    CachedKey key{expert.layer, expert.expert, kReferencePrecision};
    if (!resident_[index_.Of(key)] && before > thresholds_.high) {
      if (before > thresholds_.low) return;
      key.precision = low_;
    }
    const bool hit = resident_[index_.Of(key)];
    policy_->OnAccess(key, {.sequence = sequence, .hit = hit});
    wanted_.push_back(key);
    if (!hit) missing_.push_back(key);
  }

  // Of what has no room beside what the layer wants, nothing is kept.
  void Load(const CachedKey& key) {
    const auto evictable = [this](CachedKey other) { return std::ranges::find(wanted_, other) == wanted_.end(); };
    while (used_bytes_ + Bytes(key) > model_.capacity_bytes) {
      const auto victim = policy_->Victim({key, Bytes(key), LoadReason::kDemand, key.layer}, evictable);
      if (!victim) return;
      resident_[index_.Of(*victim)] = false;
      used_bytes_ -= Bytes(*victim);
      policy_->OnEvict(*victim);
    }
    resident_[index_.Of(key)] = true;
    used_bytes_ += Bytes(key);
    policy_->OnInsert(key, Bytes(key));
  }

  const ExpertModelShape& model_;
  const ExpertIndex index_;
  const HobbitThresholds thresholds_;
  const Precision low_;
  const std::unique_ptr<EvictionPolicy> policy_;
  std::vector<bool> resident_;  // by key
  uint64_t used_bytes_ = 0;
  std::vector<CachedKey> wanted_, missing_;  // of the layer
};

class Search {
 public:
  explicit Search(const std::function<absl::StatusOr<double>(const HobbitTuning&)>& penalty) : penalty_(penalty) {}

  absl::StatusOr<HobbitFound> Run() {
    for (int a = 0; a <= kSteps; a += kCoarseSteps) {
      for (int b = 0; a + b <= kSteps; b += kCoarseSteps) {
        for (int c = 0; a + b + c <= kSteps; c += kCoarseSteps) MOED_RETURN_IF_ERROR(Try({a, b, c, kSteps - a - b - c}));
      }
    }
    for (int step = kCoarseSteps / 2; step >= 1; step /= 2) MOED_RETURN_IF_ERROR(Refine(step));
    HobbitFound found{{WeightsAt(best_)}, least_};
    for (const double share : kHighCaches) {
      const HobbitTuning tuning{found.tuning.weights, share};
      MOED_ASSIGN_OR_RETURN(const double penalty, penalty_(tuning));
      if (penalty < found.penalty) found = {tuning, penalty};
    }
    return found;
  }

 private:
  // From one weight to another, as long as that gets better.
  absl::Status Refine(int step) {
    for (bool better = true; better;) {
      const Point around = best_;
      for (size_t from = 0; from < around.size(); ++from) {
        for (size_t to = 0; to < around.size(); ++to) {
          if (from == to || around[from] < step) continue;
          Point next = around;
          next[from] -= step;
          next[to] += step;
          MOED_RETURN_IF_ERROR(Try(next));
        }
      }
      better = best_ != around;
    }
    return absl::OkStatus();
  }

  absl::Status Try(const Point& point) {
    if (tried_.contains(point)) return absl::OkStatus();
    MOED_ASSIGN_OR_RETURN(const double penalty, penalty_({WeightsAt(point)}));
    tried_[point] = penalty;
    if (penalty < least_) {
      least_ = penalty;
      best_ = point;
    }
    return absl::OkStatus();
  }

  const std::function<absl::StatusOr<double>(const HobbitTuning&)>& penalty_;
  std::map<Point, double> tried_;
  Point best_{};
  double least_ = std::numeric_limits<double>::infinity();
};

}  // namespace

void AddScored(std::span<const int32_t> experts, std::span<const float> weights, HobbitRouting& routing) {
  MOED_CHECK(experts.size() == weights.size() && experts.size() == static_cast<size_t>(routing.top_k));
  float mass = 0, before = 0;
  for (const float weight : weights) mass += weight;
  for (size_t rank = 0; rank < experts.size(); ++rank) {
    routing.choices.push_back({experts[rank], before});
    if (mass > 0) before += weights[rank] / mass;
  }
}

HobbitThresholds ThresholdsOfSplit(const HobbitRouting& routing, const HobbitSplit& split) {
  MOED_CHECK(!routing.choices.empty());
  std::vector<float> scores;
  scores.reserve(routing.choices.size());
  for (const HobbitRouting::Choice& choice : routing.choices) scores.push_back(choice.before);
  std::ranges::sort(scores);
  const auto at = [&](double share) {
    const auto count = static_cast<size_t>(std::llround(share * static_cast<double>(scores.size())));
    return count == 0 ? 0. : std::min(static_cast<double>(scores[std::min(count, scores.size()) - 1]), 1.);
  };
  return {.high = at(split.high), .low = at(split.high + split.low)};
}

HobbitSplit SplitOfThresholds(const HobbitRouting& routing, const HobbitThresholds& thresholds) {
  double high = 0, low = 0;
  for (const HobbitRouting::Choice& choice : routing.choices) {
    if (choice.before <= thresholds.high) {
      ++high;
    } else if (choice.before <= thresholds.low) {
      ++low;
    }
  }
  const auto all = static_cast<double>(routing.choices.size());
  return {.high = high / all, .low = low / all};
}

double HobbitMissPenalty(const HobbitRouting& routing, const ExpertModelShape& model, const HobbitThresholds& thresholds,
                         const HobbitTuning& tuning) {
  PenaltyCache cache(model, thresholds, MakeHobbitPolicy(model, tuning));
  const auto top_k = static_cast<size_t>(routing.top_k);
  double penalty = 0;
  size_t token = 0;
  for (size_t number = 0; number < routing.sequence_ends.size(); ++number) {
    const SequenceId sequence(number + 1);
    cache.policy().OnSequenceStart(sequence);
    for (; token < routing.sequence_ends[number]; ++token) {
      cache.policy().OnToken(sequence, TokenId(0));
      for (int layer = 0; layer < routing.layers; ++layer) {
        const size_t first = (token * static_cast<size_t>(routing.layers) + static_cast<size_t>(layer)) * top_k;
        penalty += cache.Use(sequence, layer, std::span(routing.choices).subspan(first, top_k));
      }
    }
    cache.policy().OnSequenceEnd(sequence);
  }
  return penalty / static_cast<double>(routing.choices.size());
}

absl::StatusOr<HobbitFound> SearchHobbitTuning(const std::function<absl::StatusOr<double>(const HobbitTuning&)>& penalty) {
  return Search(penalty).Run();
}

}  // namespace moed
