// One record's stay in the cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/expert/cache/loader.h"
#include "core/expert/cache/record_state.h"
#include "core/expert/policies/eviction_policy.h"
#include "core/expert/provider.h"

namespace moed {

struct Slot;

// Whom the handles of a pinned slot turn to. Thread-safe.
class SlotOwner {
 public:
  virtual absl::StatusOr<PartBytes> WaitPart(Slot& slot, ExpertPart part) = 0;
  virtual bool HasPart(const Slot& slot, ExpertPart part) const = 0;
  virtual void Unpin(Slot& slot) = 0;

 protected:
  ~SlotOwner() = default;
};

// Key, bytes and bypass stay as they are while reads are under way or handles are held. Atomics are written under the cache's
// lock and read by any thread, but for pins: they grow under the lock and are dropped by any thread. Everything else needs the
// lock.
struct Slot final : LoadTarget, internal::PinnedExpert {
  static constexpr int kNoItem = -1;

  explicit Slot(SlotOwner& owner) : owner(owner) {}
  absl::StatusOr<PartBytes> WaitPart(ExpertPart part) override { return owner.WaitPart(*this, part); }
  bool HasPart(ExpertPart part) const override { return owner.HasPart(*this, part); }
  void Unpin() override { owner.Unpin(*this); }
  // Its stay ends with its last pin.
  bool leaves_unpinned() const { return bypass || state == RecordState::kFailed; }

  SlotOwner& owner;
  std::atomic<RecordState> state{RecordState::kAbsent};
  std::atomic<uint8_t> arrived{0};  // bit per read that came and was right
  std::atomic<int> pins{0};         // handles, and what the current layer has not handed out yet
  LoadReason reason = LoadReason::kDemand;
  bool bypass = false;
  std::atomic<bool> rises_later{false};           // DeviceTier's: once nobody holds it
  bool on_device = false;                         // DeviceTier's: where `bytes` are; else the host may read them
  std::atomic<const ReadyEvent*> ready{nullptr};  // DeviceTier's: they are there from then on; null: now
  int reads_left = 0;
  Loader::Tickets tickets{};
  absl::Status status;  // of a failed slot
  int64_t queued_nanos = 0;
  uint8_t times_used = 0;  // of the reference precision: by layers, as far as 2
  // LayerTurn's.
  uint64_t wanted_at = 0;  // the last layer that wanted it
  int item = kNoItem;      // of the current layer, waiting for the first read
  // GuessQueue's.
  bool unused_guess = false;  // nobody wanted it yet
  bool wished = false;        // by the policy, not guessed
  bool kept = false;          // until due_at it leaves only where nothing else can
  bool cancelling = false;
  uint64_t due_at = 0;  // when its layer comes
  // AskedReads'.
  bool asked = false;  // it is on its way, and somebody outside waits for it
  // Filler's.
  bool unused_fill = false;  // nobody wanted it yet
};

}  // namespace moed
