#include "core/expert/policies/lfu.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/check.h"
#include "core/expert/expert_index.h"
#include "core/expert/resident_set.h"

namespace moed {
namespace {

// Every sequence counts its own uses; a key's rank is the sum over sequences that run, ties go to the more recently used.
class LfuPolicy final : public EvictionPolicy {
 public:
  explicit LfuPolicy(const ExpertModelShape& context)
      : index_(context.moe_layers, context.experts_per_layer, context.precisions),
        total_(index_.size()),
        residents_(index_.size()) {}

  void OnSequenceStart(SequenceId sequence) override {
    const bool is_new = sequences_.try_emplace(sequence, Sequence{.uses = std::vector<uint32_t>(index_.size())}).second;
    MOED_CHECK(is_new);
  }
  void OnSequenceEnd(SequenceId sequence) override {
    OnSequencePause(sequence);
    sequences_.erase(sequence);
  }
  void OnSequencePause(SequenceId id) override {
    Sequence& sequence = SequenceOf(id);
    if (!std::exchange(sequence.runs, false)) return;
    for (size_t i = 0; i < index_.size(); ++i) total_[i] -= sequence.uses[i];
  }
  void OnAccess(CachedKey key, const AccessContext& context) override {
    const size_t i = index_.Of(key);
    Sequence& sequence = SequenceOf(context.sequence);
    Run(sequence);
    ++sequence.uses[i];
    ++total_[i];
    residents_.Touch(i);
  }
  void OnInsert(CachedKey key, uint64_t) override { residents_.Insert(index_.Of(key)); }
  void OnEvict(CachedKey key) override { residents_.Remove(index_.Of(key)); }
  size_t memory_bytes() const override { return sequences_.size() * index_.size() * sizeof(uint32_t); }
  std::optional<CachedKey> Victim(const Incoming&, absl::FunctionRef<bool(CachedKey)> evictable) override {
    return index_.KeyIfAny(
        residents_.LeastOf([this](uint32_t i) { return total_[i]; }, [&](size_t i) { return evictable(index_.KeyAt(i)); }));
  }

 private:
  struct Sequence {
    std::vector<uint32_t> uses;  // by key
    bool runs = false;           // has used one since it was paused
  };

  Sequence& SequenceOf(SequenceId sequence) {
    const auto found = sequences_.find(sequence);
    MOED_CHECK(found != sequences_.end());
    return found->second;
  }
  void Run(Sequence& sequence) {
    if (std::exchange(sequence.runs, true)) return;
    for (size_t i = 0; i < index_.size(); ++i) total_[i] += sequence.uses[i];
  }

  const ExpertIndex index_;
  absl::flat_hash_map<SequenceId, Sequence> sequences_;
  std::vector<uint64_t> total_;  // over sequences that run
  ResidentSet residents_;        // when it was inserted counts as a use for their order
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeLfuPolicy(const ExpertModelShape& context) { return std::make_unique<LfuPolicy>(context); }

PartMemory LfuPolicyMemory(const PartContext& context, const PartOptions&) {
  return {.sequence_bytes = context.model.experts() * static_cast<size_t>(context.model.precisions) * sizeof(uint32_t)};
}

}  // namespace moed
