#include "core/expert/presets/listing.h"

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/expert/fidelity/table.h"
#include "core/expert/policies/table.h"
#include "core/expert/predictors/table.h"
#include "core/expert/presets/table.h"

namespace moed {
namespace {

constexpr int kNameColumns = 20;

std::string ListOption(const OptionRow& option) {
  const std::string initial = option.initial.empty() ? "" : StrCat("=", option.initial);
  const std::string unit = option.unit.empty() ? "" : StrCat(" ", option.unit);
  return absl::StrFormat("      %-*s %-*s %s (%s)\n", kNameColumns + 6, StrCat(option.name, initial), kNameColumns,
                         StrCat(option.Range(), unit), ToAbsl(option.help), ToAbsl(option.source));
}

template <class Row>
std::vector<ListedRow> Listed(std::span<const Row> rows) {
  std::vector<ListedRow> listed;
  for (const Row& row : rows) listed.push_back({row.name, std::string(row.description), row.source, row.options});
  return listed;
}

std::string PartsOf(const PresetRow& preset) {
  std::string parts =
      StrCat("policy ", preset.policy, ", predictor ", preset.predictor, ", mask ", preset.mask, ", rule ", preset.rule);
  for (const OptionValue& value : preset.values) parts += StrCat(", ", value.option->name, "=", value.value);
  return parts;
}

}  // namespace

std::string ListSection(std::string_view heading, const std::vector<ListedRow>& rows) {
  std::string text = StrCat(heading, "\n");
  for (const ListedRow& row : rows) {
    const std::string source = row.source.empty() ? "" : StrCat(" (", row.source, ")");
    text += absl::StrFormat("  %-*s %s%s\n", kNameColumns, ToAbsl(row.name), row.description, source);
    for (const OptionRow* option : row.options) text += ListOption(*option);
  }
  return text;
}

std::string ListParts() {
  std::vector<ListedRow> presets;
  for (const PresetRow& row : Presets()) {
    presets.push_back({row.name, StrCat(row.description, "; ", PartsOf(row)), row.source});
  }
  return ListSection("presets (--preset)", presets) + ListSection("\npolicies (--policy)", Listed(Policies())) +
         ListSection("\npredictors (--predictor)", Listed(Predictors())) +
         ListSection("\nfidelity rules (--fidelity-rule)", Listed(FidelityRules())) +
         ListSection("\nrouter masks (of presets)", Listed(RouterMasks()));
}

}  // namespace moed
