#include "tests/engine/prefix_requests.h"

namespace moed {

Soaked Soak(Harness& harness, uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<TokenId>> histories{RandomLetters(random, 20), RandomLetters(random, 33)};
  Soaked soaked;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::pair<EngineRequest, std::shared_ptr<Recorder>>> turns;
    for (int i = 0; i < 5; ++i) {
      std::vector<TokenId> prompt = histories[random() % histories.size()];
      prompt.resize(1 + random() % prompt.size());
      const std::string session = random() % 3 == 0 ? std::string(1, static_cast<char>('p' + i)) : "";
      const int new_tokens = 1 + static_cast<int>(random() % 12);  // before the letters, whatever the compiler
      EngineRequest request = Ask(Joined(prompt, RandomLetters(random, random() % 8)), new_tokens, session);
      request.whole_prompt = true;
      turns.emplace_back(request, harness.Submit(request));
    }
    const std::string victim = turns[random() % turns.size()].first.name;
    const bool cancels = random() % 2 == 0;
    for (uint64_t step = random() % 6; step-- > 0;) harness.engine->RunOneStep();
    if (cancels && harness.engine->Cancel(harness.ids[victim], absl::CancelledError("no"))) ++soaked.cut;
    harness.RunAll();
    for (const auto& [request, recorder] : turns) {
      EXPECT_TRUE(recorder->finish);
      if (!recorder->finish || !recorder->finish->status.ok()) continue;
      ExpectAnswer(*recorder, Reference(request));
      soaked.cached += recorder->cached_tokens;
      EXPECT_LE(recorder->cached_tokens, recorder->prompt_tokens);
      std::vector<TokenId> history = Joined(request.prompt, recorder->tokens());
      if (history.size() > 80) history.resize(80);
      if (histories.size() < 6) histories.push_back(history);
      histories[random() % histories.size()] = history;
    }
  }
  return soaked;
}

}  // namespace moed
