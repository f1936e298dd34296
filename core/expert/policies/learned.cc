#include "core/expert/policies/learned.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/base/check.h"
#include "core/expert/expert_index.h"
#include "core/expert/learning/next_use.h"

namespace moed {
namespace {

constexpr float kAbsent = 2;       // more than any value
constexpr float kUseless = 1e-6f;  // less than any; not 0, since candidates are divided by it
// Of wishes: less likely ones, and those worth little more than who leaves for them, are reads for nothing.
constexpr float kLeastWish = 0.4f;
constexpr float kWorthMore = 1.5f;

// The place of the lowest number, the first of equals. Lane by lane, so that compilers compare several at once.
size_t LowestOf(std::span<const float> numbers) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> lowest;
  lowest.fill(kAbsent);
  const float* x = numbers.data();
  size_t i = 0;
  for (; i + kLanes <= numbers.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lowest[lane] = x[i + lane] < lowest[lane] ? x[i + lane] : lowest[lane];
  }
  for (; i < numbers.size(); ++i) lowest[i % kLanes] = std::min(lowest[i % kLanes], x[i]);
  return static_cast<size_t>(std::ranges::find(numbers, *std::ranges::min_element(lowest)) - numbers.begin());
}

// A layer's order changes only when the layer was routed, so the resident of each layer that is needed last is kept until then: a
// victim costs a look at every layer and at the experts of few.
class LearnedPolicy final : public EvictionPolicy {
 public:
  explicit LearnedPolicy(const ExpertModelShape& context)
      : index_(context.moe_layers, context.experts_per_layer, context.precisions, context.encoder_positions()),
        layers_(static_cast<size_t>(index_.layers())),
        precisions_(static_cast<size_t>(index_.precisions())),
        keys_of_layer_(static_cast<size_t>(index_.experts_per_layer()) * precisions_),
        all_bytes_(AllBytes(context)),
        chooses_(!HoldsAll(context.capacity_bytes)),
        next_use_(context),
        values_(index_.size(), kAbsent),
        last_needed_(layers_, kUnknown),
        candidates_(layers_),
        later_(layers_ + 1) {
    for (size_t distance = 0; distance <= layers_; ++distance) {
      later_[distance] = NextUse::ValueIn(static_cast<float>(distance) / static_cast<float>(index_.token_layers()));
    }
  }

  void Learn(const LayerRouting& routing) override {
    if (chooses_) {
      next_use_.Learn(routing);
    } else {
      next_use_.CountFrequencies(routing);
    }
  }
  void OnRouted(const LayerRouting& routing) override {
    const auto position = static_cast<size_t>(index_.Position(routing.layer));
    next_use_.Publish(static_cast<int>(position));
    for (size_t i = position * keys_of_layer_; i < (position + 1) * keys_of_layer_; ++i) {
      if (values_[i] != kAbsent) values_[i] = ValueOf(i);
    }
    last_needed_[position] = kUnknown;
  }
  void OnAccess(CachedKey, const AccessContext&) override {}
  void OnInsert(CachedKey key, uint64_t) override {
    const size_t i = index_.Of(key);
    MOED_CHECK(values_[i] == kAbsent);
    values_[i] = ValueOf(i);
    size_t& kept = last_needed_[i / keys_of_layer_];
    if (kept == kNone || (kept != kUnknown && values_[i] < values_[kept])) kept = i;
    if (key.precision == kReferencePrecision) RevalueLower(i);
  }
  void OnEvict(CachedKey key) override {
    const size_t i = index_.Of(key);
    MOED_CHECK(values_[i] != kAbsent);
    values_[i] = kAbsent;
    size_t& kept = last_needed_[i / keys_of_layer_];
    if (kept == i) kept = kUnknown;
    if (key.precision == kReferencePrecision) RevalueLower(i);
  }

  // The resident of lowest value, if it is evictable; else its layer's next one takes part in its place.
  std::optional<CachedKey> Victim(const Incoming& incoming, absl::FunctionRef<bool(CachedKey)> evictable) override {
    const auto here = static_cast<size_t>(index_.Position(incoming.current_layer));
    for (size_t position = 0; position < layers_; ++position) candidates_[position] = LastNeededFrom(here, position);
    for (;;) {
      Candidate& lowest = *std::ranges::min_element(candidates_, {}, &Candidate::value);
      if (lowest.key == kNone) return std::nullopt;
      if (evictable(index_.KeyAt(lowest.key))) {
        // Than a guess is likely to be.
        const bool needed_sooner = incoming.reason == LoadReason::kPrefetch && lowest.value > later_[index_.token_layers()];
        return needed_sooner ? std::nullopt : std::optional(index_.KeyAt(lowest.key));
      }
      lowest = LastEvictable(lowest, static_cast<size_t>(&lowest - candidates_.data()), evictable);
    }
  }

  std::optional<CachedKey> Wish(LayerId current, float least_probability, absl::FunctionRef<bool(CachedKey)> absent,
                                absl::FunctionRef<bool(CachedKey)> evictable) override {
    if (!chooses_) return std::nullopt;
    const auto here = static_cast<size_t>(index_.Position(current));
    float lowest = kAbsent;
    for (size_t position = 0; position < layers_; ++position) {
      Candidate last = LastNeededFrom(here, position);
      if (last.key != kNone && !evictable(index_.KeyAt(last.key))) last = LastEvictable(last, position, evictable);
      lowest = std::min(lowest, last.value);
    }
    std::optional<CachedKey> wish;
    float highest = lowest == kAbsent ? 0 : kWorthMore * lowest;
    for (auto position = static_cast<size_t>(index_.encoder_positions()); position < layers_; ++position) {
      const float later = LaterFrom(here, position);
      for (size_t i = position * keys_of_layer_ + kReferencePrecision; i < (position + 1) * keys_of_layer_; i += precisions_) {
        const float value = next_use_.Value(i / precisions_);
        if (value * later <= highest || value < std::max(least_probability, kLeastWish) || !absent(index_.KeyAt(i))) continue;
        wish = index_.KeyAt(i);
        highest = value * later;
      }
    }
    return wish;
  }

  absl::Status SetCapacity(uint64_t bytes) override {
    chooses_ = !HoldsAll(bytes);
    return absl::OkStatus();
  }
  void Popularity(LayerId layer, std::span<float> of_experts) const override {
    std::ranges::copy(next_use_.Frequency(index_.Position(layer)), of_experts.begin());
  }
  void VisitLearned(LearnedState& state) override {
    next_use_.VisitLearned(state);
    for (size_t i = 0; i < values_.size(); ++i) {
      if (values_[i] != kAbsent) values_[i] = ValueOf(i);
    }
    std::ranges::fill(last_needed_, kUnknown);
  }
  size_t memory_bytes() const override { return next_use_.memory_bytes() + OwnBytes(values_.size(), layers_); }
  static size_t OwnBytes(size_t keys, size_t layers) {
    return keys * sizeof(float) + layers * (sizeof(size_t) + sizeof(Candidate) + sizeof(float)) + sizeof(float);
  }

 private:
  static constexpr size_t kNone = ~size_t{0};         // no resident
  static constexpr size_t kUnknown = ~size_t{0} - 1;  // to be looked for

  struct Candidate {
    size_t key;
    float value;  // counted from now on
  };

  // Nobody uses a lower copy beside the reference.
  float ValueOf(size_t i) const {
    const size_t reference = i - i % precisions_ + kReferencePrecision;
    return i != reference && values_[reference] != kAbsent ? kUseless : next_use_.Value(i / precisions_);
  }
  // The expert's other copies, after its reference came or left.
  void RevalueLower(size_t reference) {
    for (size_t i = reference + 1; i < reference + precisions_; ++i) {
      if (values_[i] == kAbsent) continue;
      values_[i] = ValueOf(i);
      last_needed_[i / keys_of_layer_] = kUnknown;
    }
  }
  // 0 where nothing is known of bytes.
  static uint64_t AllBytes(const ExpertModelShape& context) {
    uint64_t all = 0;
    for (const uint64_t bytes : context.record_bytes) all += context.experts() * bytes;
    return all;
  }
  // Then nobody leaves.
  bool HoldsAll(uint64_t capacity_bytes) const { return all_bytes_ > 0 && capacity_bytes >= all_bytes_; }

  // What a value of that layer counts at this one.
  float LaterFrom(size_t here, size_t position) const {
    return later_[index_.Distance(static_cast<int>(here), static_cast<int>(position))];
  }
  Candidate LastNeededFrom(size_t here, size_t position) {
    const size_t last = LastNeeded(position);
    return {last, last == kNone ? kAbsent : values_[last] * LaterFrom(here, position)};
  }
  // In the place of `last`, the layer's last of all.
  Candidate LastEvictable(const Candidate& last, size_t position, absl::FunctionRef<bool(CachedKey)> evictable) const {
    const size_t key = LastNeededOf(position, evictable);
    return {key, key == kNone ? kAbsent : values_[key] * (last.value / values_[last.key])};
  }
  // The resident of a layer that is needed last, whether evictable or not.
  size_t LastNeeded(size_t position) {
    size_t& kept = last_needed_[position];
    if (kept != kUnknown) return kept;
    const size_t first = position * keys_of_layer_;
    kept = first + LowestOf(std::span(values_).subspan(first, keys_of_layer_));
    if (values_[kept] == kAbsent) kept = kNone;
    return kept;
  }
  size_t LastNeededOf(size_t position, absl::FunctionRef<bool(CachedKey)> allowed) const {
    const size_t first = position * keys_of_layer_;
    const float* values = &values_[first];
    CachedKey key = index_.KeyAt(first);
    size_t last = kNone;
    float last_value = kAbsent;
    for (size_t i = 0; i < keys_of_layer_; ++i) {
      if (values[i] >= last_value) continue;
      key.expert = static_cast<int32_t>(i / precisions_);
      key.precision = static_cast<Precision>(i % precisions_);
      if (!allowed(key)) continue;
      last = first + i;
      last_value = values[i];
    }
    return last;
  }

  const ExpertIndex index_;
  const size_t layers_;
  const size_t precisions_;
  const size_t keys_of_layer_;
  const uint64_t all_bytes_;
  bool chooses_;
  NextUse next_use_;
  std::vector<float> values_;          // by key; of residents
  std::vector<size_t> last_needed_;    // (layers) resident key
  std::vector<Candidate> candidates_;  // (layers) scratch
  std::vector<float> later_;           // by MoE layers from the current one: what a value counts less
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeLearnedPolicy(const ExpertModelShape& context) {
  return std::make_unique<LearnedPolicy>(context);
}

PartMemory LearnedPolicyMemory(const PartContext& context, const PartOptions&) {
  const ExpertModelShape& model = context.model;
  const size_t keys = model.experts() * static_cast<size_t>(model.precisions);
  return {.fixed_bytes = NextUse::BytesWithoutTable(model) + LearnedPolicy::OwnBytes(keys, model.moe_layers.size()),
          .tables = 1,
          .most_table_bytes = NextUse::MostTableBytes(model)};
}

}  // namespace moed
