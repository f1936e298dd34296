// How fast requests go through the engine, as measured.
#pragma once

#include <cstdint>
#include <optional>

namespace moed {

// Not synchronised.
class Pace {
 public:
  // A step computed so many tokens, of which `prefilled` are of prompts.
  void OnStep(int tokens, int prefilled, int64_t nanos);
  // A request ended for which so many tokens were computed.
  void OnEnd(int tokens);

  // Between two ends while requests are computed at the rate of the last steps: tokens of a request / tokens a second. 0: nothing
  // was measured.
  double SecondsPerEnd() const { return SecondsFor(tokens_per_request_); }
  // Until so many tokens are computed, at the same rate.
  double SecondsFor(double tokens) const { return tokens_ > 0 ? tokens * seconds_ / tokens_ : 0; }
  // Of a prompt, alone, at the highest rate that any step with its tokens had, in steps of `max_step_tokens` at most. Absent: no
  // step was as large, so it might be faster than any rate that was seen.
  std::optional<double> PrefillSeconds(int tokens, int max_step_tokens) const;

 private:
  double tokens_ = 0;  // of the last steps, older ones for less
  double seconds_ = 0;
  double tokens_per_request_ = 0;  // of the last requests, likewise; 0: none ended
  double fastest_prefill_ = 0;     // tokens a second; slowly forgotten
  int largest_prefill_ = 0;        // tokens of a step
};

}  // namespace moed
