// SwapMoE, arXiv 2308.15030, 3.5.1: how often the virtual experts are chosen anew: more and more often, until steps get slower.
#pragma once

#include <cstdint>
#include <optional>

namespace moed {

struct SwapMoeFrequencyOptions {
  int window = 64;          // tokens between two updates, at first
  double growth = 2;        // of the frequency from one trial to the next; 1: the first window stays
  double tolerance = 0.05;  // steps may take this share longer than the shortest mean so far
  int least_window = 4;
  int judged_steps = 16;  // that a trial's mean is taken over, at least
};

// Fed with what happens. Not synchronised.
class SwapMoeFrequency {
 public:
  explicit SwapMoeFrequency(const SwapMoeFrequencyOptions& options);

  int window() const { return window_; }     // tokens from one update to the next
  bool settled() const { return settled_; }  // the search is over
  // A step of answers alone, of so many tokens. One of another number of tokens begins the comparison anew.
  void OnStep(int tokens, double seconds);
  // `late`: loads of the window were not done when it ended, which counts as slower: a higher frequency would read no more.
  void OnWindowEnd(bool late);

 private:
  void BeginWindow();
  void Judge(bool slower);

  const SwapMoeFrequencyOptions options_;
  int window_;
  bool settled_;
  bool lowering_ = false;       // the first window was too short already
  std::optional<int> good_;     // the shortest window that made no step slower
  std::optional<double> best_;  // seconds: least mean so far
  int tokens_ = 0;              // of the steps that are compared
  // Of the window that is tried.
  int steps_ = 0;
  double seconds_ = 0;
  int trials_ = 0;  // that have ended
  bool late_ = false;
};

}  // namespace moed
