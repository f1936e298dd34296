// What each part of a preset gives: pairs of contenders, with the part and without it, as the papers' own ablations take them
// apart.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/systems/report.h"
#include "nlohmann/json.hpp"

namespace moed {

struct AblationRow {
  std::string_view system;
  std::string_view part;
  std::string_view with;  // contenders
  std::string_view without;
  std::string_view source;  // the paper's figure, or "own"
};
std::span<const AblationRow> Ablations();

// Every contender of the table, once.
std::vector<std::string> AblationNames();

// "What each part gives": of each cell the pairs of which both take part. Empty where there is none.
std::string AblationTables(const ReportParts& parts);
nlohmann::ordered_json AblationJson(const ReportParts& parts);

}  // namespace moed
