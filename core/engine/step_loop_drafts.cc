// Drafts in the engine's turn: the last tokens of a sequence while a step computes, that nobody has chosen yet.
#include <algorithm>
#include <utility>

#include "core/engine/step_loop.h"

namespace moed {

// Tokens that a draft may have: those of the step, of the answer, and of the page that its sequence writes to, so that it never
// takes memory. What a draft overwrites has to be seen by nobody who goes on without it.
int StepLoop::DraftRoom(const LiveRequest& live) const {
  if (!live.Decoding() || !FidelityOf(live).OfExperts().exact()) return 0;
  const KvSequence& kv = live.sequence->kv;
  const int next = kv.length + 1;
  const int room = std::min({kMaxDraftTokens, max_step_tokens_ - 1, live.answer->most_left() - 1,
                             static_cast<int>(kv.pages.size()) * parts_.kv.page_tokens() - next});
  return room > 0 && parts_.kv.CanCutBack(kv, next, next + room) ? room : 0;
}

// To the step of one decoding sequence that is alone.
void StepLoop::AddDraft(LiveRequest& live) {
  live.draft_found = false;
  const int room = DraftRoom(live);
  if (room == 0) return;
  std::vector<TokenId>& tokens = live.sequence->tokens;
  const std::optional<size_t> place = PlaceOfDraft(tokens);
  if (!place) return;
  live.draft_found = true;
  if (!trials_.open()) return;
  live.drafted = prices_.Length(live.trust.share(), room);
  if (live.drafted == 0) {
    live.trust.OnSkipped();
    return prices_.OnSkipped();
  }
  for (int i = 0; i < live.drafted; ++i) tokens.push_back(tokens[*place + static_cast<size_t>(i)]);
  chunks_.front().tokens = std::span<const TokenId>(tokens).subspan(tokens.size() - static_cast<size_t>(live.drafted) - 1);
}

// As if the tokens that were chosen had come one by one: those of the draft that were stay where they are. Returns how many
// computed ones are forgotten.
int StepLoop::TakeBackDraft(LiveRequest& live) {
  if (live.drafted == 0) return 0;
  Sequence& sequence = *live.sequence;
  const int right = std::max(live.chosen - 1, 0);
  sequence.tokens.resize(sequence.tokens.size() - static_cast<size_t>(live.drafted - right));
  const int length = static_cast<int>(sequence.tokens.size());
  if (sequence.kv.length > length) parts_.kv.CutBack(sequence.kv, length, sequence.kv.length);
  live.trust.OnStep(live.drafted, right);
  counts_.drafted_tokens += static_cast<uint64_t>(live.drafted);
  counts_.accepted_draft_tokens += static_cast<uint64_t>(right);
  return std::exchange(live.drafted, 0) - right;
}

}  // namespace moed
