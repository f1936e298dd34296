// How many tokens a step may have in which somebody decodes, who waits for all of it.
#pragma once

namespace moed {

// The least, but where a step waits for experts: about as many as are computed in three quarters of the time that it takes to
// read them. Whoever decodes waits for those whatever else the step computes, and fewer steps of a prompt read them less often.
// Not synchronised.
class SharedStep {
 public:
  // 1 <= least <= most.
  SharedStep(int least, int most) : least_(least), most_(most), tokens_(least) {}

  int tokens() const { return tokens_; }
  // Such a step with a piece of a prompt in it had so many tokens, and waited for experts for a part of its time.
  void OnStep(int tokens, double seconds, double waited_seconds);

 private:
  const int least_, most_;
  int tokens_;
};

}  // namespace moed
