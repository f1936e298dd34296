#include "core/expert/policies/hobbit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/expert_index.h"
#include "core/expert/resident_set.h"

namespace moed {
namespace {

enum Class : size_t { kHigh, kLow };

// Of one expert at any precision, in one sequence; all in its tokens, as T is: a prompt's step is as many tokens as it has.
struct Record {
  uint32_t last_use = 0;   // R
  uint32_t uses = 0;       // F
  uint32_t high_uses = 0;  // H
};

// Of equal priorities the one unused for longest leaves.
// The paper has one sequence. Here the terms that are a sequence's (R/T, F/T, H/T) are the mean over those that run.
class HobbitPolicy final : public EvictionPolicy {
 public:
  HobbitPolicy(const ExpertModelShape& context, const HobbitTuning& tuning)
      : index_(context.moe_layers, context.experts_per_layer, context.precisions),
        places_(index_.Places()),
        weights_(tuning.weights),
        priority_(index_.size() / index_.precisions()),
        distance_term_(index_.layers()),
        residents_{ResidentSet(index_.size()), ResidentSet(index_.size())},
        bytes_(index_.size()),
        high_part_(context.precisions < 2 ? 1 : tuning.high_cache) {
    MOED_CHECK(std::min({weights_.lru, weights_.lfu, weights_.lhu, weights_.fld}) >= 0);
    MOED_CHECK(std::abs(weights_.lru + weights_.lfu + weights_.lhu + weights_.fld - 1) < 1e-6);
    Share(context.capacity_bytes);
  }

  void OnSequenceStart(SequenceId sequence) override {
    auto begun = std::make_unique<Sequence>(Sequence{.records = std::vector<Record>(priority_.size())});
    const bool is_new = sequences_.try_emplace(sequence, std::move(begun)).second;
    MOED_CHECK(is_new);
  }
  void OnSequenceEnd(SequenceId sequence) override {
    OnSequencePause(sequence);
    sequences_.erase(sequence);
  }
  void OnSequencePause(SequenceId sequence) override {
    std::erase(running_, &SequenceOf(sequence));
    stale_ = true;
  }
  void OnToken(SequenceId id, TokenId) override {
    Sequence& sequence = SequenceOf(id);
    Run(sequence);
    ++sequence.tokens;
    stale_ = true;
  }
  void OnAccess(CachedKey key, const AccessContext& context) override {
    const size_t i = index_.Of(key);
    const size_t expert = i / index_.precisions();
    Sequence& sequence = SequenceOf(context.sequence);
    Run(sequence);
    Record& record = sequence.records[expert];
    record.last_use = sequence.tokens;
    const auto tokens = static_cast<uint32_t>(context.tokens);
    record.uses += tokens;
    record.high_uses += key.precision == kReferencePrecision ? tokens : 0;
    if (!stale_) priority_[expert] = Priority(expert);
    residents_[ClassOf(key)].Touch(i);
  }
  void OnInsert(CachedKey key, uint64_t bytes) override {
    const size_t i = index_.Of(key);
    residents_[ClassOf(key)].Insert(i);
    bytes_[i] = bytes;
    used_bytes_[ClassOf(key)] += bytes;
  }
  void OnEvict(CachedKey key) override {
    const size_t i = index_.Of(key);
    residents_[ClassOf(key)].Remove(i);
    used_bytes_[ClassOf(key)] -= bytes_[i];
  }
  std::optional<CachedKey> Victim(const Incoming& incoming, absl::FunctionRef<bool(CachedKey)> evictable) override {
    Refresh();
    const int current = index_.Position(incoming.current_layer);
    for (int position = 0; position < index_.layers(); ++position) {
      const int ahead = (position - current + index_.layers()) % index_.layers();
      distance_term_[position] = weights_.fld * (1 - static_cast<double>(ahead) / index_.layers());
    }
    const Class first = CacheToShrink(incoming);
    const size_t victim = Lowest(first, evictable);
    return index_.KeyIfAny(victim != ResidentSet::kNone ? victim : Lowest(first == kHigh ? kLow : kHigh, evictable));
  }

  absl::Status SetCapacity(uint64_t bytes) override {
    Share(bytes);
    return absl::OkStatus();
  }

  size_t memory_bytes() const override { return sequences_.size() * priority_.size() * sizeof(Record); }

 private:
  struct Sequence {
    uint32_t tokens = 0;  // T
    std::vector<Record> records;
  };

  void Share(uint64_t capacity_bytes) {
    const auto high = static_cast<uint64_t>(static_cast<double>(capacity_bytes) * high_part_);
    high_share_bytes_ = std::min(capacity_bytes, high);
    low_share_bytes_ = capacity_bytes - high_share_bytes_;
  }
  static Class ClassOf(const CachedKey& key) { return key.precision == kReferencePrecision ? kHigh : kLow; }

  Sequence& SequenceOf(SequenceId sequence) {
    const auto found = sequences_.find(sequence);
    MOED_CHECK(found != sequences_.end());
    return *found->second;
  }

  void Run(const Sequence& sequence) {
    if (std::ranges::find(running_, &sequence) != running_.end()) return;
    running_.push_back(&sequence);
    stale_ = true;
  }

  // Without the distance term, which depends on the layer being computed.
  double Priority(size_t expert) const {
    double sum = 0;
    for (const Sequence* sequence : running_) {
      const Record& record = sequence->records[expert];
      const double terms = weights_.lru * record.last_use + weights_.lfu * record.uses + weights_.lhu * record.high_uses;
      sum += terms / std::max(sequence->tokens, 1u);
    }
    return running_.empty() ? 0 : sum / static_cast<double>(running_.size());
  }
  void Refresh() {
    if (!stale_) return;
    for (size_t expert = 0; expert < priority_.size(); ++expert) priority_[expert] = Priority(expert);
    stale_ = false;
  }

  // The incoming record's own where it is at its share, else the other, which then is over its own.
  Class CacheToShrink(const Incoming& incoming) const {
    const Class own = ClassOf(incoming.key);
    const uint64_t share = own == kHigh ? high_share_bytes_ : low_share_bytes_;
    return used_bytes_[own] + incoming.bytes > share ? own : own == kHigh ? kLow : kHigh;
  }
  size_t Lowest(Class precisions, absl::FunctionRef<bool(CachedKey)> evictable) const {
    const auto score = [this](uint32_t i) {
      const auto [expert, layer] = places_[i];
      return priority_[expert] + distance_term_[layer];
    };
    return residents_[precisions].LeastOf(score, [&](size_t i) { return evictable(index_.KeyAt(i)); });
  }

  const ExpertIndex index_;
  const std::vector<ExpertIndex::Place> places_;
  const HobbitWeights weights_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  std::vector<const Sequence*> running_;  // of them, that were told of since they were paused
  std::vector<double> priority_;          // by expert, right unless stale_
  std::vector<double> distance_term_;     // by layer, while a victim is looked for
  bool stale_ = false;
  ResidentSet residents_[2];     // by class
  std::vector<uint64_t> bytes_;  // by key, of residents
  uint64_t used_bytes_[2] = {};
  const double high_part_;  // of the cache
  uint64_t high_share_bytes_ = 0;
  uint64_t low_share_bytes_ = 0;
};

}  // namespace

absl::StatusOr<HobbitTuning> HobbitTuningOf(const PartOptions& options) {
  const auto plan = options.File<HobbitPlan>(kHobbitPlanOption);
  HobbitTuning tuning = plan != nullptr ? plan->tuning : HobbitTuning{};
  HobbitWeights& weights = tuning.weights;
  for (const auto& [row, number] :
       {std::pair(&kHobbitLru, &weights.lru), std::pair(&kHobbitLfu, &weights.lfu), std::pair(&kHobbitLhu, &weights.lhu),
        std::pair(&kHobbitFld, &weights.fld), std::pair(&kHobbitHighCache, &tuning.high_cache)}) {
    if (plan != nullptr && !options.Given(*row)) continue;
    MOED_ASSIGN_OR_RETURN(*number, options.Number(*row));
  }
  const double sum = weights.lru + weights.lfu + weights.lhu + weights.fld;
  if (std::abs(sum - 1) < 1e-6) return tuning;
  return InvalidArgument("hobbit-lru, hobbit-lfu, hobbit-lhu and hobbit-fld sum to ", sum, ", 1 is needed",
                         plan != nullptr ? "; those that are not given are the plan's" : "");
}

absl::Status CheckHobbitPolicyOptions(const PartOptions& options) {
  return options.Unread(kHobbitPlanOption) ? absl::OkStatus() : HobbitTuningOf(options).status();
}

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeHobbitPolicy(const PartContext& context, const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(const HobbitTuning tuning, HobbitTuningOf(options));
  return MakeHobbitPolicy(context.model, tuning);
}

PartMemory HobbitPolicyMemory(const PartContext& context, const PartOptions&) {
  return {.sequence_bytes = context.model.experts() * sizeof(Record)};
}

std::unique_ptr<EvictionPolicy> MakeHobbitPolicy(const ExpertModelShape& context, const HobbitTuning& tuning) {
  return std::make_unique<HobbitPolicy>(context, tuning);
}

}  // namespace moed
