#include "core/expert/cache/prediction_score.h"

namespace moed {

void PredictionScore::OnGuesses(std::span<const Guess> guesses, float min_probability) {
  for (const Guess& guess : guesses) {
    if (!(guess.probability >= min_probability)) continue;
    uint8_t& guessed = guessed_[index_.Of({guess.key.layer, guess.key.expert})];
    if (guessed == 0) marked_[static_cast<size_t>(index_.Position(guess.key.layer))].push_back(guess.key.expert);
    guessed = 1;
  }
}

void PredictionScore::OnRouted(LayerId layer, Phase phase, std::span<const WantedExpert> wanted) {
  PredictionCounts& counts = counts_[EnumIndex(phase)];
  std::vector<int32_t>& marked = marked_[static_cast<size_t>(index_.Position(layer))];
  counts.routed += wanted.size();
  counts.guessed += marked.size();
  for (const WantedExpert& expert : wanted) counts.right += guessed_[index_.Of({layer, expert.expert})];
  for (const int32_t expert : marked) guessed_[index_.Of({layer, expert})] = 0;
  marked.clear();
}

size_t PredictionScore::memory_bytes() const {
  size_t bytes = guessed_.capacity();
  for (const std::vector<int32_t>& layer : marked_) bytes += layer.capacity() * sizeof(int32_t);
  return bytes;
}

}  // namespace moed
