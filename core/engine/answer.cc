#include "core/engine/answer.h"

#include <algorithm>
#include <utility>

namespace moed {

Answer::Answer(const Tokenizer& tokenizer, const EngineRequest& request, const AnswerLimits& limits)
    : decoder_(tokenizer, request.skip_special_tokens, limits.continues),
      matcher_(request.stopping.stop_strings, request.stopping.include_stop_string),
      ending_tokens_(request.stopping.stop_tokens),
      min_new_tokens_(request.stopping.min_new_tokens),
      max_new_tokens_(limits.max_new_tokens),
      room_(limits.room) {
  if (!request.stopping.ignore_eos) ending_tokens_.insert(ending_tokens_.end(), limits.eos.begin(), limits.eos.end());
}

std::optional<FinishReason> Answer::Push(TokenInfo token, TokenDelta& delta, bool may_end) {
  ++completion_tokens_;
  if (may_end && Ends(token.token)) {
    stop_token_ = token.token;
    delta.text += Flush();
    return FinishReason::kStop;
  }
  delta.text += matcher_.Push(decoder_.Push(token.token), completion_tokens_ > min_new_tokens_);
  delta.tokens.push_back(std::move(token));
  if (matcher_.matched()) return FinishReason::kStopString;
  if (completion_tokens_ < std::min(max_new_tokens_, room_)) return std::nullopt;
  delta.text += Flush();
  return completion_tokens_ == room_ ? FinishReason::kContext : FinishReason::kLength;
}

std::string Answer::Flush() {
  std::string text = matcher_.Push(decoder_.Flush(), completion_tokens_ > min_new_tokens_);
  return text + matcher_.Flush();
}

std::span<const TokenId> Answer::forbidden() const {
  if (completion_tokens_ >= min_new_tokens_) return {};
  return ending_tokens_;
}

bool Answer::Ends(TokenId token) const {
  return std::find(ending_tokens_.begin(), ending_tokens_.end(), token) != ending_tokens_.end();
}

}  // namespace moed
