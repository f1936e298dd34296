#include "bench/replay/belady.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/check.h"
#include "core/expert/expert_index.h"

namespace moed {
namespace {

class BeladyPolicy final : public EvictionPolicy {
 public:
  BeladyPolicy(std::span<const RoutingTrace* const> traces, size_t at_once)
      : index_(traces.front()->shape.layers, traces.front()->shape.experts, 1),
        uses_(index_.size()),
        used_(index_.size()),
        resident_(index_.size()) {
    for (const RoutingTrace* trace : traces) {
      const std::span<const TraceSequence> all = trace->sequences;
      for (size_t first = 0; first < all.size(); first += at_once) {
        FollowGroup(*trace, all.subspan(first, std::min(at_once, all.size() - first)));
      }
    }
  }

  void OnAccess(CachedKey key, const AccessContext&) override { ++used_[index_.Of(key)]; }
  void OnInsert(CachedKey key, uint64_t) override { resident_[index_.Of(key)] = true; }
  void OnEvict(CachedKey key) override { resident_[index_.Of(key)] = false; }

  std::optional<CachedKey> Victim(const Incoming&, absl::FunctionRef<bool(CachedKey)> evictable) override {
    std::optional<CachedKey> victim;
    uint32_t victim_step = 0;
    for (size_t i = 0; i < resident_.size(); ++i) {
      if (!resident_[i] || (victim && NextUse(i) <= victim_step)) continue;
      const CachedKey key = index_.KeyAt(i);
      if (!evictable(key)) continue;
      victim = key;
      victim_step = NextUse(i);
    }
    return victim;
  }

 private:
  // Sequences that begin together.
  void FollowGroup(const RoutingTrace& trace, std::span<const TraceSequence> group) {
    const size_t longest = std::ranges::max(group, {}, &TraceSequence::tokens).tokens;
    for (size_t token = 0; token < longest; ++token) {
      for (int layer = 0; layer < index_.layers(); ++layer, ++step_) {
        for (const TraceSequence& sequence : group) {
          if (token < sequence.tokens) Follow(trace, sequence.first + token, layer);
        }
      }
    }
  }
  void Follow(const RoutingTrace& trace, size_t token, int layer) {
    for (int slot = 0; slot < trace.shape.top_k; ++slot) {
      const int32_t expert = trace.experts[trace.At(token, layer) + static_cast<size_t>(slot)];
      uses_[index_.Of({index_.Layer(layer), expert})].push_back(step_);
    }
  }
  uint32_t NextUse(size_t i) const { return used_[i] < uses_[i].size() ? uses_[i][used_[i]] : UINT32_MAX; }

  const ExpertIndex index_;
  std::vector<std::vector<uint32_t>> uses_;  // by key: the layer steps of its uses by a token, ascending
  std::vector<uint32_t> used_;               // by key: how many of them are over
  std::vector<char> resident_;
  uint32_t step_ = 0;  // of layers
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeBeladyPolicy(std::span<const RoutingTrace* const> traces, size_t at_once) {
  MOED_CHECK(!traces.empty() && at_once > 0);
  return std::make_unique<BeladyPolicy>(traces, at_once);
}

}  // namespace moed
