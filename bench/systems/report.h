// The journal as JSON and as Markdown: a table for each cell, and what is to be reached beside what was.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/systems/cells.h"
#include "bench/systems/journal.h"
#include "bench/systems/setup.h"
#include "nlohmann/json.hpp"

namespace moed {

struct ReportParts {
  const SystemsBench& bench;
  const std::vector<Cell>& cells;
  const std::vector<Contender>& contenders;
  const SystemsJournal& journal;
  nlohmann::ordered_json run;  // what decides the figures
};

// Median, lowest and highest of a figure over the turns of a contender in a cell.
struct Spread {
  double median = 0, low = 0, high = 0;
};
std::optional<Spread> SpreadOf(const SystemsJournal& journal, const Cell& cell, const std::string& contender,
                               const std::string& figure);
// Every turn's requests were served exactly: what they lose is not measured, there is nothing to lose.
bool IsExact(const SystemsJournal& journal, const Cell& cell, const std::string& contender);
// The same of the ratio of two contenders, turn by turn: both were measured at about the same time.
std::optional<Spread> RatioOf(const SystemsJournal& journal, const Cell& cell, const std::string& ours,
                              const std::string& theirs);

nlohmann::ordered_json ReportJson(const ReportParts& parts);
std::string ReportMarkdown(const ReportParts& parts);

}  // namespace moed
