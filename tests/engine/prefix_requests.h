// Requests whose prompts begin alike, for an engine of the harness.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/engine_harness.h"

namespace moed {

inline std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline std::vector<TokenId> RandomLetters(std::mt19937_64& random, size_t count) {
  std::vector<TokenId> letters;
  for (size_t i = 0; i < count; ++i) letters.push_back(TokenId('a' + static_cast<int>(random() % 8)));
  return letters;
}

inline EngineRequest Ask(std::vector<TokenId> prompt, int new_tokens, const std::string& session = "") {
  EngineRequest request = GreedyRequest("", new_tokens);
  request.prompt = std::move(prompt);
  request.session_id = session;
  return request;
}

// Runs it alone, holds it against the naive loop. `history`: of its session.
inline std::shared_ptr<Recorder> Serve(Harness& harness, const EngineRequest& request, const std::vector<TokenId>& history = {},
                                       int max_context = 96) {
  auto recorder = harness.Submit(request);
  harness.RunAll();
  ExpectAnswer(*recorder, Reference(request, history, max_context));
  return recorder;
}

// Rounds of requests, with and without sessions, whose prompts begin as earlier conversations did, some of them cancelled: every
// answer is the naive loop's. How many tokens of them were not computed, and how many requests were cancelled.
struct Soaked {
  int cached = 0;
  int cut = 0;
};
Soaked Soak(Harness& harness, uint64_t seed, int rounds);

}  // namespace moed
