#include "bench/replay/synthetic_trace.h"

#include <algorithm>
#include <random>

namespace moed {
namespace {

constexpr int kVocabulary = 4096;

class Router {
 public:
  explicit Router(const RoutingShape& shape) : shape_(shape), before_(shape.layers.size() * static_cast<size_t>(shape.top_k)) {}

  // Few words are frequent: the square of a uniform number.
  int NextToken() {
    const double share = Uniform();
    return static_cast<int>(share * share * kVocabulary);
  }

  void Choose(int token, size_t layer, std::vector<uint16_t>& experts) {
    const auto top_k = static_cast<size_t>(shape_.top_k);
    const std::span<uint16_t> before = std::span(before_).subspan(layer * top_k, top_k);
    const size_t first = experts.size();
    for (size_t slot = 0; slot < top_k; ++slot) {
      uint16_t expert = 0;
      const double kind = Uniform();
      for (bool again = false;; again = true) {
        const bool own = kind < 0.5 && !again, last = kind >= 0.5 && kind < 0.75 && !again;
        expert = own ? OwnOf(token, layer, slot) : last ? before[slot] : static_cast<uint16_t>(random_() % Experts());
        if (std::find(experts.begin() + static_cast<std::ptrdiff_t>(first), experts.end(), expert) == experts.end()) break;
      }
      experts.push_back(expert);
    }
    std::copy(experts.begin() + static_cast<std::ptrdiff_t>(first), experts.end(), before.begin());
  }

 private:
  uint64_t Experts() const { return static_cast<uint64_t>(shape_.experts); }
  double Uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  uint16_t OwnOf(int token, size_t layer, size_t slot) const {
    const uint64_t mixed = (static_cast<uint64_t>(token) * 1000003 + layer * 8191 + slot * 131 + 7) * 0x9e3779b97f4a7c15u;
    return static_cast<uint16_t>((mixed >> 32) % Experts());
  }

  const RoutingShape& shape_;
  std::mt19937_64 random_{1};
  std::vector<uint16_t> before_;  // (layers, top_k): the token before
};

}  // namespace

RoutingTrace SyntheticTrace(const RoutingShape& shape, size_t tokens, size_t sequences) {
  RoutingTrace trace{.shape = shape, .sequences = {}, .token_ids = {}, .experts = {}, .probabilities = {}};
  for (size_t i = 0; i < sequences; ++i) trace.sequences.push_back({i * tokens, tokens, ""});
  Router router(trace.shape);
  for (size_t i = 0; i < sequences * tokens; ++i) {
    const int token = router.NextToken();
    trace.token_ids.push_back(TokenId(token));
    for (size_t layer = 0; layer < shape.layers.size(); ++layer) router.Choose(token, layer, trace.experts);
  }
  for (size_t i = 0; i < trace.experts.size(); ++i) {
    const size_t slot = i % static_cast<size_t>(shape.top_k);
    trace.probabilities.push_back(static_cast<uint8_t>(255 / (static_cast<size_t>(shape.top_k) + slot)));
  }
  return trace;
}

}  // namespace moed
