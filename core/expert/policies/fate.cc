#include "core/expert/policies/fate.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/expert_index.h"
#include "core/expert/policies/arc_lists.h"

namespace moed {
namespace {

// Bytes that each layer should hold, in records of the reference precision. All zero where nothing is known of bytes.
std::vector<uint64_t> Quotas(size_t layers, uint64_t experts, uint64_t record_bytes, uint64_t capacity_bytes,
                             size_t shallow_layers) {
  std::vector<uint64_t> quotas(layers);
  if (record_bytes == 0) return quotas;
  const size_t shallow = std::min(layers, shallow_layers);
  uint64_t records = capacity_bytes / record_bytes;
  for (size_t layer = 0; layer < shallow; ++layer) {
    const uint64_t here = std::min(records, experts);
    quotas[layer] = here * record_bytes;
    records -= here;
  }
  for (size_t layer = shallow; layer < layers; ++layer)
    quotas[layer] = std::min(records / (layers - shallow), experts) * record_bytes;
  return quotas;
}

// A layer at its quota makes room for its own. Where it is not, or has nothing to give, the layer leaves most over its quota
// gives, of equals the deeper one: so a layer without a quota borrows from the deepest one that has a quota.
class FatePolicy final : public EvictionPolicy {
 public:
  FatePolicy(const ExpertModelShape& context, int shallow_layers)
      : index_(context.moe_layers, context.experts_per_layer, context.precisions),
        record_bytes_(context.record_bytes.empty() ? 0 : context.record_bytes[kReferencePrecision]),
        shallow_layers_(static_cast<size_t>(shallow_layers)),
        bytes_(index_.size()),
        order_(index_.layers()) {
    for (int layer = 0; layer < index_.layers(); ++layer) layers_.push_back({.lists = ArcLists(PerLayer(), 0)});
    ShareOut(context.capacity_bytes);
  }

  void OnAccess(CachedKey key, const AccessContext&) override { LayerOf(key).lists.OnAccess(InLayer(key)); }
  void OnInsert(CachedKey key, uint64_t bytes) override {
    Layer& layer = LayerOf(key);
    layer.lists.OnInsert(InLayer(key));
    layer.used_bytes += static_cast<int64_t>(bytes);
    bytes_[index_.Of(key)] = bytes;
  }
  void OnEvict(CachedKey key) override {
    Layer& layer = LayerOf(key);
    layer.lists.OnEvict(InLayer(key));
    layer.used_bytes -= static_cast<int64_t>(bytes_[index_.Of(key)]);
  }

  absl::Status SetCapacity(uint64_t bytes) override {
    ShareOut(bytes);
    return absl::OkStatus();
  }

  std::optional<CachedKey> Victim(const Incoming& incoming, absl::FunctionRef<bool(CachedKey)> evictable) override {
    const int own = index_.Position(incoming.key.layer);
    if (layers_[own].used_bytes + static_cast<int64_t>(incoming.bytes) > layers_[own].quota_bytes) {
      const auto victim = VictimIn(own, InLayer(incoming.key), evictable);
      if (victim) return victim;
    }
    order_.clear();
    for (int position = 0; position < index_.layers(); ++position) {
      if (layers_[position].lists.residents() > 0) order_.push_back(position);
    }
    std::ranges::sort(order_, [this](int a, int b) { return std::pair(Over(a), a) > std::pair(Over(b), b); });
    for (const int position : order_) {
      const auto victim = VictimIn(position, position == own ? InLayer(incoming.key) : KeyLists::kNone, evictable);
      if (victim) return victim;
    }
    return std::nullopt;
  }

 private:
  struct Layer {
    int64_t quota_bytes = 0;
    int64_t used_bytes = 0;
    ArcLists lists;  // over the layer's keys
  };

  void ShareOut(uint64_t capacity_bytes) {
    const std::vector<uint64_t> quotas =
        Quotas(layers_.size(), static_cast<uint64_t>(index_.experts_per_layer()), record_bytes_, capacity_bytes, shallow_layers_);
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      layers_[layer].quota_bytes = static_cast<int64_t>(quotas[layer]);
      layers_[layer].lists.SetLeastCapacity(quotas[layer] == 0 ? 0 : quotas[layer] / record_bytes_);
    }
  }

  size_t PerLayer() const { return static_cast<size_t>(index_.experts_per_layer() * index_.precisions()); }
  Layer& LayerOf(const CachedKey& key) { return layers_[index_.Position(key.layer)]; }
  size_t InLayer(const CachedKey& key) const { return index_.Of(key) % PerLayer(); }
  int64_t Over(int position) const { return layers_[position].used_bytes - layers_[position].quota_bytes; }
  std::optional<CachedKey> VictimIn(int position, size_t incoming, absl::FunctionRef<bool(CachedKey)> evictable) const {
    const size_t first = static_cast<size_t>(position) * PerLayer();
    const size_t victim = layers_[position].lists.Victim(incoming, [&](size_t i) { return evictable(index_.KeyAt(first + i)); });
    if (victim == KeyLists::kNone) return std::nullopt;
    return index_.KeyAt(first + victim);
  }

  const ExpertIndex index_;
  const uint64_t record_bytes_;  // of the reference precision; 0: nothing is known of bytes
  const size_t shallow_layers_;
  std::vector<Layer> layers_;
  std::vector<uint64_t> bytes_;  // by key, of residents
  std::vector<int> order_;       // of layers, while a victim is looked for
};

}  // namespace

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeFatePolicy(const PartContext& context, const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(const int shallow_layers, FateShallowLayers(options));
  return MakeFatePolicy(context.model, shallow_layers);
}

std::unique_ptr<EvictionPolicy> MakeFatePolicy(const ExpertModelShape& context, int shallow_layers) {
  MOED_CHECK(shallow_layers >= 0);
  return std::make_unique<FatePolicy>(context, shallow_layers);
}

}  // namespace moed
