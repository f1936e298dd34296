// One request's answer: chosen tokens in, text and the reason to end out.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/engine/engine.h"
#include "core/engine/stop_matcher.h"
#include "core/tokenizer/tokenizer.h"

namespace moed {

struct AnswerLimits {
  std::span<const TokenId> eos;  // of the model
  int max_new_tokens = 0;        // of the request
  int room = 0;                  // tokens that the context leaves
  bool continues = false;        // the text follows other text
};

// The token that ends the sequence (EOS, or a stop token of the request) is counted but is neither in a delta nor in the text.
// `min_new_tokens` forbids those tokens, and no stop string ends within so many. Where the answer's format lets it not end yet
// they are text. Not synchronised.
class Answer {
 public:
  Answer(const Tokenizer& tokenizer, const EngineRequest& request, const AnswerLimits& limits);

  // The next token; appends to `delta`. A reason: this was the last one, and everything held back is in `delta`.
  std::optional<FinishReason> Push(TokenInfo token, TokenDelta& delta, bool may_end = true);
  // What is held back, for an answer that ends without a token of its own (time limit).
  std::string Flush();

  // Tokens that may not be chosen next.
  std::span<const TokenId> forbidden() const;
  // Tokens that end the answer.
  std::span<const TokenId> ending() const { return ending_tokens_; }
  bool Ends(TokenId token) const;
  int completion_tokens() const { return completion_tokens_; }
  int most_left() const { return std::min(max_new_tokens_, room_) - completion_tokens_; }
  std::string stop_string() const { return matcher_.matched() ? matcher_.match() : ""; }
  TokenId stop_token() const { return stop_token_; }

 private:
  StreamDecoder decoder_;
  StopMatcher matcher_;
  std::vector<TokenId> ending_tokens_;
  const int min_new_tokens_;
  const int max_new_tokens_;
  const int room_;
  int completion_tokens_ = 0;
  TokenId stop_token_;
};

}  // namespace moed
