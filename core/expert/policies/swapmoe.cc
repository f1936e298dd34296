#include "core/expert/policies/swapmoe.h"

#include <utility>

#include "core/base/status.h"
#include "core/expert/swapmoe/options.h"

namespace moed {
namespace {

class SwapMoePolicy final : public EvictionPolicy {
 public:
  explicit SwapMoePolicy(std::shared_ptr<SwapMoeExperts> experts) : experts_(std::move(experts)) {}

  void OnAccess(CachedKey key, const AccessContext&) override { experts_->OnAccess(key); }
  void OnInsert(CachedKey key, uint64_t) override { experts_->OnInsert(key); }
  void OnEvict(CachedKey key) override { experts_->OnEvict(key); }
  std::optional<CachedKey> Victim(const Incoming& incoming, absl::FunctionRef<bool(CachedKey)> evictable) override {
    return experts_->Victim(incoming, evictable);
  }
  absl::Status SetCapacity(uint64_t) override {
    return FailedPrecondition("policy swapmoe shared its slots out among the layers at the start: its cache keeps its size");
  }

 private:
  const std::shared_ptr<SwapMoeExperts> experts_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeSwapMoePolicy(std::shared_ptr<SwapMoeExperts> experts) {
  return std::make_unique<SwapMoePolicy>(std::move(experts));
}

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeSwapMoePolicy(const PartContext& context, const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(std::shared_ptr<SwapMoeExperts> experts, SharedSwapMoeExperts(context, options));
  return MakeSwapMoePolicy(std::move(experts));
}

}  // namespace moed
