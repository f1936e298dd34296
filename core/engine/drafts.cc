#include "core/engine/drafts.h"

#include <algorithm>

namespace moed {
namespace {

constexpr int kLongestMatch = 8;
constexpr int kFirstDraft = 2;  // before anything is known of their price
constexpr double kFirstShare = 0.7;
constexpr double kWeight = 1.0 / 8;         // of a step in what is known of prices, and of a token in what is known of drafts
constexpr double kTrustFading = 1.0 / 64;   // with each draft that was not computed
constexpr double kPriceFading = 1.0 / 256;  // slower: a try may cost several steps
constexpr double kLeastGain = 1.05;
constexpr int kWindowTokens = 128;
constexpr int kTokensToFollow = 32;     // of a window, for the cache
constexpr double kWindowWeight = 0.25;  // in what is known of either way: texts differ more than the ways do
constexpr int kFewestRests = 4, kMostRests = 64;

// Of the tokens before `a` and before `b`, how many are the same.
int Match(std::span<const TokenId> tokens, size_t a, size_t b) {
  int length = 0;
  while (length < kLongestMatch && a > 0 && tokens[a - 1] == tokens[b - 1]) ++length, --a, --b;
  return length;
}

}  // namespace

std::optional<size_t> PlaceOfDraft(std::span<const TokenId> tokens) {
  const size_t end = tokens.size();
  int longest = kLeastMatch - 1;
  std::optional<size_t> best;
  for (size_t place = end; place-- > 1 && longest < kLongestMatch;) {
    if (tokens[place - 1] != tokens[end - 1]) continue;
    const int length = Match(tokens, place, end);
    if (length > longest) longest = length, best = place;
  }
  return best;
}

void DraftTrust::OnStep(int drafted, int right) {
  for (int i = 0; i < right; ++i) share_ += (1 - share_) * kWeight;
  if (right < drafted) share_ -= share_ * kWeight;
}

void DraftTrust::OnSkipped() { share_ += (kFirstShare - share_) * kTrustFading; }

int DraftPrices::Length(double share, int available) const {
  if (step_nanos_ == 0) return 0;
  if (!token_known_) available = std::min(available, kFirstDraft);
  int best = 0;
  double rate = kLeastGain / step_nanos_;  // tokens a nanosecond
  double tokens = 1, reached = 1;
  for (int length = 1; length <= available; ++length) {
    reached *= share;
    tokens += reached;
    const double rate_now = tokens / (step_nanos_ + length * token_nanos_);
    if (rate_now > rate) rate = rate_now, best = length;
  }
  return best;
}

void DraftPrices::OnStep(int drafted, int64_t nanos) {
  const auto approach = [](double& value, double seen, bool known) { value += (seen - value) * (known ? kWeight : 1); };
  const auto took = static_cast<double>(nanos);
  if (drafted == 0) return approach(step_nanos_, took, step_nanos_ > 0);
  approach(token_nanos_, std::max(0.0, took - step_nanos_) / drafted, token_known_);
  token_known_ = true;
}

void DraftPrices::OnSkipped() { token_nanos_ -= token_nanos_ * kPriceFading; }

void DraftTrials::OnStep(int tokens, int64_t nanos) {
  if (tokens_ >= kTokensToFollow) counted_ += tokens, nanos_ += nanos;
  tokens_ += tokens;
  if (tokens_ >= kWindowTokens) EndWindow();
}

void DraftTrials::EndWindow() {
  double& known = token_nanos_[open_];
  const double seen = static_cast<double>(nanos_) / std::max(counted_, 1);
  known += (seen - known) * (known > 0 ? kWindowWeight : 1);
  tokens_ = counted_ = 0;
  nanos_ = 0;
  if (left_ > 0) {
    if (--left_ == 0) open_ = !pays_;
    return;
  }
  const bool pays = token_nanos_[true] <= token_nanos_[false];
  rest_ = pays == pays_ ? std::min(2 * rest_, kMostRests) : kFewestRests;
  left_ = rest_;
  open_ = pays_ = pays;
}

}  // namespace moed
