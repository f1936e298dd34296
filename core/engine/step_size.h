// How many tokens of prompts a step is to have where it may wait for experts.
#pragma once

namespace moed {

// The least, but where a step waits for experts: about as many as are computed in `share` of the time that it takes to read them.
// Fewer steps of a prompt read them less often, and whoever else waits for the step waits for those reads whatever it computes.
// Not synchronised.
class StepSize {
 public:
  // 1 <= least <= most, 0 < share < 1: a step that waited for nothing is followed by a smaller one.
  StepSize(int least, int most, double share) : least_(least), most_(most), share_(share), tokens_(least) {}

  int tokens() const { return tokens_; }
  // Such a step with a piece of a prompt in it had so many tokens, and waited for experts for a part of its time.
  void OnStep(int tokens, double seconds, double waited_seconds);

 private:
  const int least_, most_;
  const double share_;
  int tokens_;
};

}  // namespace moed
