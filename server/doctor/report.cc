#include "server/doctor/report.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/base/version.h"

namespace moed {

bool CanServe(const std::vector<CheckedRow>& rows) {
  return std::ranges::none_of(rows, [](const CheckedRow& row) { return row.finding.prevents_serving; });
}

std::string RowText(const CheckedRow& row) {
  const auto& [check, finding] = row;
  std::string text =
      absl::StrFormat("%-17s %-12s %s\n", std::string(check->title), std::string(CheckStateName(finding.state)), finding.found);
  if (!finding.remedy.empty()) text += absl::StrFormat("%-30s -> %s\n", "", finding.remedy);
  return text;
}

std::string VerdictText(const std::vector<CheckedRow>& rows) {
  if (CanServe(rows)) return "moed can serve here\n";
  std::string reasons;
  for (const auto& [check, finding] : rows) {
    if (finding.prevents_serving) reasons += StrCat(reasons.empty() ? "" : "; ", check->title);
  }
  return StrCat("moed cannot serve here: ", reasons, "\n");
}

std::string DoctorJson(const std::vector<CheckedRow>& rows, const std::string& path) {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const auto& [check, finding] : rows) {
    checks.push_back({{"name", check->name},
                      {"state", CheckStateName(finding.state)},
                      {"found", finding.found},
                      {"remedy", finding.remedy},
                      {"values", finding.values}});
  }
  const nlohmann::ordered_json report = {
      {"version", Version()}, {"path", path}, {"can_serve", CanServe(rows)}, {"checks", std::move(checks)}};
  return report.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace moed
