#include "core/expert/policies/learned.h"

#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/expert/expert_index.h"
#include "core/expert/learning/next_use.h"

namespace moed {
namespace {

// A layer's order changes only when the layer was routed, so the resident of each layer that is needed last is kept until then: a
// victim costs a look at every layer and at the experts of few.
class LearnedPolicy final : public EvictionPolicy {
 public:
  explicit LearnedPolicy(const ExpertModelShape& context)
      : index_(context.moe_layers, context.experts_per_layer, context.precisions),
        next_use_(context),
        resident_(index_.size()),
        last_needed_(static_cast<size_t>(index_.layers()), kUnknown) {}

  void OnSequenceEnd(SequenceId sequence) override { next_use_.OnSequenceEnd(sequence); }
  void OnToken(SequenceId sequence, TokenId token) override { next_use_.OnToken(sequence, token); }
  void OnRouted(const LayerRouting& routing) override {
    next_use_.OnRouted(routing);
    last_needed_[LayerOf(routing.layer)] = kUnknown;
  }
  void OnAccess(CachedKey, const AccessContext&) override {}
  void OnInsert(CachedKey key, uint64_t) override {
    const size_t i = index_.Of(key);
    MOED_CHECK(!resident_[i]);
    resident_[i] = true;
    size_t& kept = last_needed_[LayerOf(key.layer)];
    if (kept == kNone || (kept != kUnknown && TokensAway(i) > TokensAway(kept))) kept = i;
  }
  void OnEvict(CachedKey key) override {
    const size_t i = index_.Of(key);
    MOED_CHECK(resident_[i]);
    resident_[i] = false;
    size_t& kept = last_needed_[LayerOf(key.layer)];
    if (kept == i) kept = kUnknown;
  }

  std::optional<CachedKey> Victim(const Incoming& incoming, absl::FunctionRef<bool(CachedKey)> evictable) override {
    size_t victim = kNone;
    float victim_tokens = 0;
    for (int position = 0; position < index_.layers(); ++position) {
      const size_t last = LastNeeded(position, evictable);
      if (last == kNone) continue;
      const auto distance = static_cast<float>(index_.Distance(incoming.current_layer, index_.Layer(position)));
      const float tokens = TokensAway(last) + distance / static_cast<float>(index_.layers());
      if (victim != kNone && tokens <= victim_tokens) continue;
      victim = last;
      victim_tokens = tokens;
    }
    const bool needed_sooner = incoming.reason == LoadReason::kPrefetch && victim_tokens < 1;  // than a guess is likely to be
    if (victim == kNone || needed_sooner) return std::nullopt;
    return index_.KeyAt(victim);
  }

  void Popularity(LayerId layer, std::span<float> of_experts) const override {
    std::ranges::copy(next_use_.Frequency(index_.Position(layer)), of_experts.begin());
  }
  void VisitLearned(LearnedState& state) override {
    next_use_.VisitLearned(state);
    std::ranges::fill(last_needed_, kUnknown);
  }
  size_t memory_bytes() const override {
    return next_use_.memory_bytes() + resident_.size() + last_needed_.size() * sizeof(size_t);
  }

 private:
  static constexpr size_t kNone = ~size_t{0};         // no resident
  static constexpr size_t kUnknown = ~size_t{0} - 1;  // to be looked for

  size_t LayerOf(LayerId layer) const { return static_cast<size_t>(index_.Position(layer)); }
  size_t PerLayer() const { return static_cast<size_t>(index_.experts_per_layer() * index_.precisions()); }
  float TokensAway(size_t i) const {
    const size_t in_layer = i % PerLayer();
    return next_use_.TokensAway(static_cast<int>(i / PerLayer()), static_cast<int32_t>(in_layer) / index_.precisions());
  }

  // The evictable resident of a layer that is needed last; kept where all residents are evictable.
  size_t LastNeeded(int position, absl::FunctionRef<bool(CachedKey)> evictable) {
    size_t& kept = last_needed_[static_cast<size_t>(position)];
    if (kept == kUnknown) kept = FindLastNeeded(position, [](CachedKey) { return true; });
    if (kept == kNone || evictable(index_.KeyAt(kept))) return kept;
    return FindLastNeeded(position, evictable);
  }
  size_t FindLastNeeded(int position, absl::FunctionRef<bool(CachedKey)> allowed) const {
    const size_t begin = static_cast<size_t>(position) * PerLayer();
    size_t last = kNone;
    float last_tokens = 0;
    for (size_t i = begin; i < begin + PerLayer(); ++i) {
      if (!resident_[i]) continue;
      const float tokens = TokensAway(i);
      if ((last != kNone && tokens <= last_tokens) || !allowed(index_.KeyAt(i))) continue;
      last = i;
      last_tokens = tokens;
    }
    return last;
  }

  const ExpertIndex index_;
  NextUse next_use_;
  std::vector<char> resident_;
  std::vector<size_t> last_needed_;  // (layers) resident key, whether evictable or not
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeLearnedPolicy(const ExpertModelShape& context) {
  return std::make_unique<LearnedPolicy>(context);
}

PartMemory LearnedPolicyMemory(const PartContext& context, const PartOptions&) {
  const ExpertModelShape& model = context.model;
  const size_t residents = model.experts() * static_cast<size_t>(model.precisions);
  return {.fixed_bytes = NextUse::BytesWithoutTable(model) + residents + model.moe_layers.size() * sizeof(size_t), .tables = 1};
}

}  // namespace moed
