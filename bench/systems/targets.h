// What is to be reached: rows of one table, each a ratio of decode rates in one cell.
#pragma once

#include <string>
#include <vector>

#include "bench/systems/report.h"

namespace moed {

struct TargetResult {
  std::string what;  // "hobbit / load-on-demand-lru"
  std::string cell;
  double reach = 0;
  std::optional<Spread> ratio;  // absent: one of the two has no rate
  bool met() const { return ratio && ratio->median >= reach; }
};

// Every target in every cell that it is about, of those whose contenders take part.
std::vector<TargetResult> Targets(const ReportParts& parts);

}  // namespace moed
