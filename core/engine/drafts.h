// Prompt lookup: text that repeats itself foretells how it goes on. What followed the same tokens before is computed together
// with the next token, in one step of several tokens; the sampler then chooses as if they had come one by one, and what it does
// not choose is forgotten. A step's bits do not depend on how tokens are cut into steps, so answers do not either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/base/ids.h"

namespace moed {

// Most tokens of a draft: with the one that they follow a step of 8, as many as products of few tokens take.
inline constexpr int kMaxDraftTokens = 7;
// A draft follows at least so many tokens that are the same as the last ones.
inline constexpr int kLeastMatch = 3;

// The place behind the longest of the earlier pieces, of up to 8 tokens, that are like the end; of equally long ones the last.
// What is there is the draft's first token. Empty where nothing is like the end. One pass over `tokens`, without memory of its
// own.
std::optional<size_t> PlaceOfDraft(std::span<const TokenId> tokens);

// How often the draft's next token is the one that is chosen, as one request has seen it.
class DraftTrust {
 public:
  double share() const { return share_; }
  void OnStep(int drafted, int right);
  void OnSkipped();  // a draft was there and not computed: what was learned fades

 private:
  double share_ = 0.7;
};

// What steps of a sequence that is alone take: one token, and each that is computed beside it. Experts that have to be read are
// in it, and so the disk says whether drafts pay. Engine thread only.
class DraftPrices {
 public:
  // Tokens of a draft to compute, of `available` ones: as many as make tokens fastest. 0: none is faster, or it is not known yet
  // what a step of one token takes.
  int Length(double share, int available) const;
  void OnStep(int drafted, int64_t nanos);
  void OnSkipped();

 private:
  double step_nanos_ = 0;   // of one token; 0: not known
  double token_nanos_ = 0;  // of each further one
  bool token_known_ = false;
};

// Whether drafts pay in all. A step's price does not have what the draft pushed out of the expert cache and later steps read
// again. So now and then the other way is taken for a while, and what a token took is compared. Engine thread only.
class DraftTrials {
 public:
  // Whether drafts may be computed now.
  bool open() const { return open_; }
  // A step at which there was a draft to compute has given so many tokens.
  void OnStep(int tokens, int64_t nanos);

 private:
  void EndWindow();

  bool open_ = true;
  bool pays_ = true;  // the last verdict
  int rest_ = 4;      // windows from one trial to the next
  int left_ = rest_;  // until then; 0: this is the trial
  // Of this window.
  int tokens_ = 0;
  int counted_ = 0;          // but for the first ones: by then the cache has followed
  int64_t nanos_ = 0;        // of those
  double token_nanos_[2]{};  // average over windows with drafts closed, and open; 0: there was none
};

}  // namespace moed
