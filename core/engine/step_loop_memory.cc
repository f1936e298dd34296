// Keys and values in the engine's turn: what others have computed is taken, room is made, what ends is left to others.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/engine/step_loop.h"

namespace moed {

// What is known of its tokens takes the place of what it would compute. The last one is computed always: its logits are wanted.
void StepLoop::TakePrefix(LiveRequest& live) {
  if (!UsesPrefixes(live) || live.prefix_version == PrefixVersion()) return;
  live.prefix_version = PrefixVersion();
  Sequence& sequence = *live.sequence;
  KvSequence& kv = sequence.kv;
  OwnedTokens tokens = Owned(sequence);
  tokens.tokens = tokens.tokens.first(static_cast<size_t>(live.Goal() - 1));
  const PrefixCache::Match known = prefixes_->Find(tokens, FidelityOf(live));
  if (checkpoints_) return TakeCheckpoint(live, tokens, known);
  const int before = kv.length;
  if (known.length <= before) return;
  prefixes_->Take(known, kv);
  sequence.kv_fidelity = before == 0 ? known.fidelity : std::max(sequence.kv_fidelity, known.fidelity);
  live.prefix_tokens += kv.length - before;
}

OwnedTokens StepLoop::SourceOf(const LiveRequest& live) {
  return {std::span<const TokenId>(live.sequence->tokens).first(static_cast<size_t>(live.shared_tokens)), live.sequence->owner};
}

// What is known of sources takes the place of what would be computed. What somebody before them computes in this step the others
// wait for.
void StepLoop::TakeSources(int may_run) {
  if (!sources_) return;
  for (int i = 0; i < may_run; ++i) {
    LiveRequest& live = *live_[i];
    TakeSource(live);
    const auto computes_it = [&](const auto& other) {
      const OwnedTokens own = SourceOf(live), its = SourceOf(*other);
      return other->BeginsWhole() && its.owner == own.owner && FidelityOf(*other) <= FidelityOf(live) &&
             std::ranges::equal(its.tokens, own.tokens);
    };
    live.awaits_source = UsesSources(live) && live.BeginsWhole() && std::any_of(live_.begin(), live_.begin() + i, computes_it);
  }
}

void StepLoop::TakeSource(LiveRequest& live) {
  if (!UsesSources(live) || !live.BeginsWhole() || live.prefix_version == sources_->version()) return;
  live.prefix_version = sources_->version();
  KvSequence& kv = live.sequence->kv;
  const auto known = sources_->Find(SourceOf(live), FidelityOf(live));
  if (!known || !sources_->Take(*known, kv)) return;
  (parts_.model.spec().encoder ? kv.source : kv.prefix) = known->tokens;
  live.sequence->kv_fidelity = known->fidelity;
  live.dropped = known->dropped;
  live.prefix_tokens = known->tokens;
}

// Where more pages are known than states, whoever begins with them computes them once more, and leaves a state at their end: this
// beginning is one that requests share.
void StepLoop::TakeCheckpoint(LiveRequest& live, const OwnedTokens& tokens, const PrefixCache::Match& known) {
  Sequence& sequence = *live.sequence;
  KvSequence& kv = sequence.kv;
  const int before = kv.length;
  if (const auto match = checkpoints_->Find(tokens, known, FidelityOf(live), before)) {
    checkpoints_->Take(*match, kv);
    sequence.kv_fidelity = before == 0 ? match->fidelity : std::max(sequence.kv_fidelity, match->fidelity);
    live.prefix_tokens = std::max(0, live.prefix_tokens + kv.length - before);
  }
  live.next_checkpoint = known.length >= kv.length + parts_.kv.page_tokens() ? known.length : 0;
}

void StepLoop::ReleaseMemory(LiveRequest& live) {
  if (parts_.spill) parts_.spill->CancelRestore(live.sequence->id);
  live.asked_disk = false;
  parts_.kv.Release(live.sequence->kv);
  live.prefix_version.reset();
  live.prefix_tokens = live.last_checkpoint = live.next_checkpoint = 0;
  live.passing_checkpoint = 0;
  live.dropped = 0;  // counted again with the source
}

void StepLoop::Preempt(LiveRequest& live) {
  if (UsesPrefixes(live) && !Restoring(live)) {
    NoteLoss(live);
    RememberEnd(*live.sequence);
  }
  ReleaseMemory(live);
  if (live.sequence->begun) parts_.provider.OnSequencePause(live.sequence->id);
  live.running = live.overtook = false;
  if (live.ScoresPrompt()) {
    live.scored_tokens = 0;
    live.prompt_logprobs.clear();
    live.prompt_top.clear();
  }
  ++live.preemptions;
  ++counts_.preemptions;
}

void StepLoop::Reserve(LiveRequest& live) {
  while (!parts_.kv.Reserve(live.sequence->kv, live.Goal())) FreeMemory();
}

// The plan counted on pages and a slot that no running request holds: they are somewhere.
void StepLoop::FreeMemory() {
  if (turns_.limits_kv()) {
    NoteHeavyTenants();
    if (DropIdleMemory([this](const Sequence& idle) { return turns_.Heavy(idle.owner); })) return;
  }
  if (DropIdleMemory([](const Sequence&) { return true; })) return;
  const auto holds = [](const auto& live) { return !live->running && live->sequence->kv.holds_memory(); };
  auto waiting = std::find_if(live_.rbegin(), live_.rend(), holds);
  if (waiting == live_.rend()) {  // a session was taken up or deleted since this turn began
    const size_t known = live_.size();
    const int free = parts_.kv.free_pages() + parts_.kv.free_slots();
    Receive();
    MOED_CHECK(live_.size() > known || parts_.kv.free_pages() + parts_.kv.free_slots() > free);
    return;
  }
  ReleaseMemory(**waiting);
}

// What the idle session that was kept longest holds, of those that `may_go`; false when none holds anything.
bool StepLoop::DropIdleMemory(absl::FunctionRef<bool(const Sequence&)> may_go) {
  bool dropped = false;
  intake_.VisitIdle([&](Sequence& sequence) {
    if (!sequence.kv.holds_memory() || !may_go(sequence)) return true;
    if (parts_.spill) parts_.spill->Dropped(sequence.id, sequence.kv.length);
    parts_.kv.Release(sequence.kv);
    dropped = true;
    return false;
  });
  return dropped;
}

// Of a prompt: where others part from it, after its last step, and after the last one before that. They are a page apart at
// least.
void StepLoop::KeepCheckpoint(LiveRequest& live) {
  Sequence& sequence = *live.sequence;
  const int end = sequence.kv.length;
  const bool parting = end == live.next_checkpoint, passing = !parting && end < live.Goal();
  if (!parting && end < live.last_checkpoint + parts_.kv.page_tokens()) return;
  NoteLoss(live);
  if (passing) checkpoints_->Drop(std::exchange(live.passing_checkpoint, 0));
  const uint64_t saved = checkpoints_->Save(Owned(sequence), sequence.kv, sequence.kv_fidelity);
  if (passing) live.passing_checkpoint = saved;
  live.last_checkpoint = end;
}

// What a request has lost its keys and values have lost.
void StepLoop::NoteLoss(LiveRequest& live) {
  const SequenceCounters now = parts_.provider.sequence_counters(live.sequence->id);
  const auto lost = [](const SequenceCounters& counters) { return counters.lowered + counters.skipped + counters.masked; };
  if (lost(now) > lost(live.counters_before)) {
    live.sequence->kv_fidelity = std::max(live.sequence->kv_fidelity, FidelityOf(live));
  }
}

// What it goes on with, and was not computed since it runs, may have lost what its own steps do not.
void StepLoop::NoteTaken(LiveRequest& live) {
  const Sequence& sequence = *live.sequence;
  if (!sequence.kv_fidelity.exact()) live.lossy_cached_tokens = std::max(live.lossy_cached_tokens, sequence.kv.length);
}

// What is not known yet of a sequence that ends, or gives way: its full pages, too, where its prompt was scored.
void StepLoop::RememberEnd(Sequence& sequence) {
  prefixes_->Remember(Owned(sequence), sequence.kv, sequence.kv_fidelity);
  prefixes_->RememberTail(Owned(sequence), sequence.kv, sequence.kv_fidelity);
  if (checkpoints_) checkpoints_->Leave(Owned(sequence), sequence.kv, sequence.kv_fidelity);
}

// Of one that has no state any more; its pages stay known, for whoever goes on at a checkpoint.
void StepLoop::ReleaseLost(Sequence& sequence, bool remember) {
  if (remember) prefixes_->RememberTail(Owned(sequence), sequence.kv, sequence.kv_fidelity);
  parts_.kv.Release(sequence.kv);
}

// Pages that running sequences hold, each once.
int StepLoop::CountHolders() {
  std::fill(holders_.begin(), holders_.end(), uint16_t{0});
  int pages = 0;
  for (const auto& live : live_) {
    if (!live->running) break;
    for (const int32_t page : live->sequence->kv.pages) pages += holders_[static_cast<size_t>(page)]++ == 0 ? 1 : 0;
  }
  return pages;
}

}  // namespace moed
