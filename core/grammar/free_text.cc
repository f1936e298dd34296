#include "core/grammar/free_text.h"

#include <array>
#include <optional>
#include <vector>

#include "core/grammar/vocabulary_trie.h"

namespace moed::grammar {
namespace {

// What of markers the text ends with.
struct State {
  std::array<int, 256> next;
  int marker = -1;  // that is whole
};

// State 0 is that of nothing. Breadth first, so that a state's longest proper ending is known before the state is.
std::vector<State> MakeStates(std::span<const FreeTextMarker> markers) {
  std::vector<State> states(1);
  std::vector<int> ending = {0};
  states[0].next.fill(-1);
  for (size_t marker = 0; marker < markers.size(); ++marker) {
    int at = 0;
    for (const char c : markers[marker].bytes) {
      const auto byte = static_cast<uint8_t>(c);
      if (states[at].next[byte] < 0) {
        states[at].next[byte] = static_cast<int>(states.size());
        states.emplace_back().next.fill(-1);
        ending.push_back(0);
      }
      at = states[at].next[byte];
    }
    states[at].marker = static_cast<int>(marker);
  }
  std::vector<int> queue = {0};
  for (size_t i = 0; i < queue.size(); ++i) {
    const int at = queue[i];
    if (states[at].marker < 0) states[at].marker = states[ending[at]].marker;
    for (int byte = 0; byte < 256; ++byte) {
      int& next = states[at].next[byte];
      const int otherwise = at == 0 ? 0 : states[ending[at]].next[byte];
      if (next < 0) {
        next = otherwise;
      } else {
        ending[next] = otherwise;
        queue.push_back(next);
      }
    }
  }
  return states;
}

}  // namespace

void SetFreeText(uint32_t rule, std::span<const FreeTextMarker> markers, bool may_end, ProgramBuilder& builder) {
  const std::vector<State> states = MakeStates(markers);
  std::vector<uint32_t> rules = {rule};
  for (size_t i = 1; i < states.size(); ++i) rules.push_back(builder.NewRule());
  const auto target = [&](int state) {
    const int marker = states[state].marker;
    return marker >= 0 ? markers[marker].then : builder.Call(rules[state], ProgramBuilder::kReturn);
  };
  for (size_t at = 0; at < states.size(); ++at) {
    if (states[at].marker >= 0) continue;
    std::vector<Pc> parts;
    if (may_end) parts.push_back(ProgramBuilder::kReturn);
    for (int low = 0, high = 0; low < 256; low = high + 1) {
      high = low;
      const int next = states[at].next[low];
      while (high < 255 && states[at].next[high + 1] == next && high + 1 != kSpecialByte) ++high;
      if (low == kSpecialByte && next == 0) continue;
      parts.push_back(builder.Bytes(static_cast<uint8_t>(low), static_cast<uint8_t>(high), target(next)));
    }
    builder.SetRule(rules[at], builder.Either(parts));
  }
}

}  // namespace moed::grammar
