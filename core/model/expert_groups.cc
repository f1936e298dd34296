#include "core/model/expert_groups.h"

#include <algorithm>
#include <utility>

namespace moed {

void GroupByExpert(std::span<const ExpertChoice> choices, std::span<int32_t> begin, std::span<int32_t> slots) {
  // First begin[e + 1] counts, then it is where e's next slot goes, which ends as where e ends.
  std::fill(begin.begin(), begin.end(), 0);
  for (const ExpertChoice& choice : choices) {
    if (choice.expert != kNoExpert) ++begin[choice.expert + 1];
  }
  int32_t total = 0;
  for (size_t i = 1; i < begin.size(); ++i) total += std::exchange(begin[i], total);
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].expert != kNoExpert) slots[begin[choices[i].expert + 1]++] = static_cast<int32_t>(i);
  }
}

}  // namespace moed
