// The part of ExpertCache for steps that a device computes without the host in their middle: where everything lies, and
// afterwards what was used of it.
//
// From then on until its end nothing is begun to be read, so that nothing leaves, and where the device's tier has no move under
// way nothing moves.
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/cache/cache.h"

namespace moed {

ExpertTable ExpertCache::WhereAllLie() {
  CountedLock lock(mutex_);
  held_ = false;
  if (!AllLieThere()) return {};
  if (table_is_of_ != slots_.changes() && !FillTable().ok()) return {};
  held_ = true;
  const size_t parts = static_cast<size_t>(index().layers()) * kExpertParts * static_cast<size_t>(index().experts_per_layer());
  return {reinterpret_cast<const std::byte* const*>(table_.data()), parts};
}

// What lies in the host's memory although the device has room rises, some records at a time.
bool ExpertCache::AllLieThere() {
  const size_t all = static_cast<size_t>(index().layers()) * static_cast<size_t>(index().experts_per_layer());
  if (slots_.resident_references() < all) return false;
  if (device_ == nullptr) return true;
  device_->Settle();
  int tried = 0;
  for (auto slot = slots_.all().begin(); slots_.references_on_device() < all && slot != slots_.all().end(); ++slot) {
    if (!InHost(**slot) || (*slot)->key.precision != kReferencePrecision) continue;
    device_->RaiseIntoFreeRoom(**slot);
    if (++tried == kMovesAtOnce) break;
  }
  return slots_.references_on_device() == all && !device_->moving();
}

absl::Status ExpertCache::FillTable() {
  const int experts = index().experts_per_layer();
  const uint64_t bytes = TableOfAllBytes(static_cast<uint64_t>(index().layers()), static_cast<uint64_t>(experts));
  if (table_.size() == 0) {
    MOED_ASSIGN_OR_RETURN(table_, table_memory_.Allocate(bytes));
  }
  auto* next = reinterpret_cast<const std::byte**>(table_.data());
  for (int position = 0; position < index().layers(); ++position) {
    for (int part = 0; part < kExpertParts; ++part) {
      for (int32_t expert = 0; expert < experts; ++expert) {
        const CachedKey key{index().Layer(position), expert, kReferencePrecision};
        const Slot* slot = slots_.Find(key);
        MOED_CHECK(slot != nullptr && slot->state == RecordState::kResident && slot->ready == nullptr);
        const ExpertSegment* segment = store_.expert_layout(key).Find(static_cast<ExpertPart>(part));
        *next++ = segment == nullptr ? nullptr : slot->bytes.data() + segment->offset;
      }
    }
  }
  table_is_of_ = slots_.changes();
  return absl::OkStatus();
}

void ExpertCache::OnStep(StepWay way) {
  CountedLock lock(mutex_);
  ++steps_[static_cast<size_t>(way)];
}

void ExpertCache::OnComputed(const LayerRouting& routing, const DemandSet& demand, std::span<const float> lost) {
  CountedLock lock(mutex_);
  turn_.Begin(routing.layer, demand.phase(), demand.sequences());
  statistics_.CountLosses(routing, lost);
  for (size_t i = 0; i < demand.experts().size(); ++i) {
    const CachedKey key{routing.layer, demand.experts()[i].expert, kReferencePrecision};
    Slot* const slot = slots_.Find(key);
    MOED_CHECK(slot != nullptr);
    CountWanted(key, LookupResult::kHit, demand.PhaseOf(i), demand.UsesOf(i));
    CountFirstUse(*slot);
    if (device_ != nullptr) device_->CountUse(TierUse::kOnDevice);
  }
  if (index().Position(routing.layer) + 1 < index().layers()) return;
  held_ = false;
  guesses_.ForgetPlanned();  // of a layer before: their layers have passed
  StartIdleReads();
}

}  // namespace moed
