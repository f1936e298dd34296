#include "tools/plan/hobbit_unfinished.h"

#include <cstdio>
#include <filesystem>
#include <vector>

#include "core/base/status.h"
#include "core/base/version.h"
#include "core/store/checksum.h"

namespace moed {

UnfinishedRouting::UnfinishedRouting(const std::string& plan, const LossEvaluator& text)
    : text_(text),
      file_{plan + ".unfinished", text.store().model_hash(),
            StrCat("part of a text: ", Checksum(StrCat(Version(), "\n", text.tokens_hash())))},
      layers_(static_cast<int>(text.store().description().moe_layers.size())),
      top_k_(text.spec().top_k) {}

absl::Status UnfinishedRouting::Write(const HobbitRouting& routing) const {
  auto windows = static_cast<int32_t>(routing.sequence_ends.size());
  std::vector<HobbitRouting::Choice> choices = routing.choices;
  return SaveLearned(file_, [&](LearnedState& state) { Visit(state, windows, choices); });
}

HobbitRouting UnfinishedRouting::TakeUp() const {
  HobbitRouting routing{layers_, top_k_};
  int32_t windows = 0;
  std::vector<HobbitRouting::Choice> choices;
  const auto taken = TakeLearned(file_, [&](LearnedState& state) { Visit(state, windows, choices); });
  if (absl::IsNotFound(taken.status())) return routing;
  if (!taken.ok()) {
    std::fprintf(stderr, "starting over: %s\n", std::string(taken.status().message()).c_str());
    return routing;
  }
  size_t tokens = 0;
  for (int window = 0; window < windows; ++window) {
    routing.sequence_ends.push_back(tokens += static_cast<size_t>(text_.WindowTokens(window)));
  }
  choices.resize(tokens * ChoicesOfToken());
  routing.choices = std::move(choices);
  std::fprintf(stderr, "resuming %s: %d windows of the text are already routed\n", path().c_str(), windows);
  return routing;
}

void UnfinishedRouting::Remove() const {
  std::error_code ignored;
  std::filesystem::remove(path(), ignored);
}

// As many choices as the whole text has, so that arrays of the file have one size.
void UnfinishedRouting::Visit(LearnedState& state, int32_t& windows, std::vector<HobbitRouting::Choice>& choices) const {
  choices.resize(static_cast<size_t>(text_.scored_tokens()) * ChoicesOfToken());
  state.Value(windows, [this](int32_t count) { return count >= 0 && count <= text_.windows(); });
  state.Values(choices, [this](const HobbitRouting::Choice& choice) {
    return choice.expert >= 0 && choice.expert < text_.spec().experts && Within{0, 2}(choice.before);
  });
}

}  // namespace moed
