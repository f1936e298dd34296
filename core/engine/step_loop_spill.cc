// Keys and values on disk in the engine's turn: what idle sessions may lose is written, what requests go on with comes back.
#include <algorithm>

#include "core/engine/step_loop.h"

namespace moed {

// Reads and writes go on beside the step; here only their ends are seen, and the next ones begun.
void StepLoop::TendSpill() {
  KvSpill& spill = *parts_.spill;
  for (const KvSpill::Restored& restored : spill.Tend()) TakeRestored(restored);
  if (!spill.saving()) SaveIdleSession();
  if (spill.version() == spill_version_) return;
  spill_version_ = spill.version();
  intake_.VisitIdle([&](Sequence& sequence) {
    sequence.on_disk = spill.TokensOnDisk(sequence.id);
    return true;
  });
}

// A request as long as they may be, or one more that runs, would take what idle sessions hold.
bool StepLoop::IdleMayLoseMemory() const {
  const KvPool& kv = parts_.kv;
  const int most = std::min(KvPool::PagesFor(kv.max_context(), kv.page_tokens()), kv.pages());
  return kv.free_pages() < most || (kv.slots() > 0 && kv.free_slots() < std::min(max_running_, kv.slots()));
}

// The one that loses its memory first.
void StepLoop::SaveIdleSession() {
  if (idle_saved_ || !IdleMayLoseMemory()) return;
  idle_saved_ = true;
  const KvSpill::Unused unused = parts_.spill->FindUnused();
  intake_.VisitIdle([&](Sequence& sequence) {
    if (!parts_.spill->Wants(sequence, unused)) return true;
    parts_.spill->Save(sequence);
    idle_saved_ = false;
    return false;
  });
}

// Once, when it begins to run: its pages are there, and as many of them as others have computed are full.
void StepLoop::AskDisk(LiveRequest& live) {
  if (parts_.spill == nullptr || live.asked_disk || live.sequence->session.empty()) return;
  live.asked_disk = true;
  const Sequence& sequence = *live.sequence;
  const int positions = parts_.spill->Restorable(sequence.id, sequence.kv, sequence.begun_with(), FidelityOf(live));
  if (positions > 0) parts_.spill->Restore(sequence.id, sequence.kv, positions);
}

void StepLoop::TakeRestored(const KvSpill::Restored& restored) {
  const auto found =
      std::find_if(live_.begin(), live_.end(), [&](const auto& live) { return live->sequence->id == restored.session; });
  LiveRequest& live = **found;
  Sequence& sequence = *live.sequence;
  KvSequence& kv = sequence.kv;
  if (!restored.whole) {
    ReleaseMemory(live);
    live.asked_disk = true;
    return TakePrefix(live);
  }
  sequence.kv_fidelity = kv.length == 0 ? restored.fidelity : std::max(sequence.kv_fidelity, restored.fidelity);
  kv.length = restored.length;
  kv.reached = restored.reached;
  if (UsesPrefixes(live)) prefixes_->Remember(Owned(sequence), kv, sequence.kv_fidelity);
}

void StepLoop::NotePrefill(int64_t nanos) {
  int tokens = 0;
  for (const SequenceChunk& chunk : chunks_) {
    if (chunk.phase == Phase::kDecode) return;
    tokens += static_cast<int>(chunk.tokens.size());
  }
  parts_.spill->prices().OnPrefill(tokens, nanos);
}

}  // namespace moed
