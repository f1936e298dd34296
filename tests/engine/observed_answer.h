// An answer with all that its bits show in, of an engine over a real model.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/engine/engine.h"

namespace moed {

struct ObservedAnswer final : public RequestObserver {
  void OnStarted(int, int cached) override { cached_tokens = cached; }
  void OnTokens(TokenDelta delta) override { tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end()); }
  void OnFinish(const FinishInfo& finish) override { status = finish.status; }

  absl::Status status = absl::UnknownError("not answered");
  std::vector<TokenInfo> tokens;
  int cached_tokens = 0;
};

// Greedy, of so many tokens, with their alternatives. `number`: of the engine's requests.
inline EngineRequest RequestOf(std::vector<TokenId> prompt, const std::string& session, int new_tokens, int number) {
  EngineRequest request;
  request.name = StrCat("request ", number);
  request.prompt = std::move(prompt);
  request.session_id = session;
  request.whole_prompt = true;
  request.sampling.temperature = 0;
  request.stopping.max_new_tokens = new_tokens;
  request.stopping.ignore_eos = true;
  request.logprobs = true;
  request.top_logprobs = 20;
  return request;
}

inline void ExpectSameBits(const std::vector<TokenInfo>& answer, const std::vector<TokenInfo>& expected,
                           const std::string& what) {
  ASSERT_EQ(answer.size(), expected.size()) << what;
  for (size_t i = 0; i < answer.size(); ++i) {
    EXPECT_EQ(answer[i].token, expected[i].token) << what << ", token " << i;
    EXPECT_EQ(answer[i].logprob, expected[i].logprob) << what << ", token " << i;
    EXPECT_EQ(answer[i].top, expected[i].top) << what << ", token " << i;
  }
}

}  // namespace moed
