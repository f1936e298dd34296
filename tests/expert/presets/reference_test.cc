// docs/policies.md says of the tables what they say of themselves.
#include <fstream>
#include <set>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/expert/presets/preset.h"
#include "tests/expert/provider_rig.h"
#include "tests/paths.h"

namespace moed {
namespace reference_test {

using testing::ElementsAreArray;

using Cells = std::vector<std::string>;

std::string Plain(std::string cell) {
  std::erase(cell, '`');
  return std::string(absl::StripAsciiWhitespace(cell));
}

// The rows below the first header that begins with this cell.
std::vector<Cells> TableOf(const std::string& first_header) {
  std::ifstream file(SourcePath("docs/policies.md"));
  std::vector<Cells> table;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("|")) {
      if (inside) return table;
      continue;
    }
    std::vector<std::string> cells = absl::StrSplit(line, '|');
    cells = {cells.begin() + 1, cells.end() - 1};
    for (std::string& cell : cells) cell = Plain(cell);
    if (inside && !cells[0].starts_with("---")) table.push_back(cells);
    inside = inside || cells[0] + "|" + cells[1] == first_header;
  }
  return table;
}

template <class Row>
void ExpectSame(const std::vector<Cells>& table, std::span<const Row> rows) {
  std::set<std::string> documented, there;
  for (const Row& row : rows) there.emplace(row.name);
  for (const Cells& cells : table) {
    EXPECT_TRUE(documented.insert(cells[0]).second) << cells[0];
    const auto row = std::ranges::find(rows, cells[0], &Row::name);
    if (row == rows.end()) continue;
    EXPECT_TRUE(cells.back().starts_with(row->source) && cells.back().empty() == row->source.empty())
        << row->name << ": \"" << cells.back() << "\" in the document, \"" << row->source << "\" in its row";
  }
  EXPECT_THAT(documented, ElementsAreArray(there));
}

TEST(Reference, NamesEveryPartWithItsSource) {
  ExpectSame(TableOf("name|the one that leaves"), Policies());
  ExpectSame(TableOf("name|reads ahead"), Predictors());
  ExpectSame(TableOf("rule|does"), FidelityRules());
  ExpectSame(TableOf("mask|lets choose among"), RouterMasks());
}

std::string_view ClassOf(std::string_view rule) {
  return std::ranges::find(FidelityRules(), rule, &FidelityRow::name)->fidelity.class_name();
}

TEST(Reference, SaysTheClassOfEveryRule) {
  const std::vector<Cells> table = TableOf("rule|does");
  ASSERT_FALSE(table.empty());
  for (const Cells& cells : table) EXPECT_EQ(cells[2], ClassOf(cells[0])) << cells[0];
}

TEST(Reference, SaysWhatEveryPresetIs) {
  const std::vector<Cells> table = TableOf("preset|policy");
  ASSERT_EQ(table.size(), Presets().size());
  for (size_t i = 0; i < table.size(); ++i) {
    const PresetRow& row = Presets()[i];
    SCOPED_TRACE(std::string(row.name));
    const auto mask = std::ranges::find(RouterMasks(), row.mask, &RouterMaskRow::name);
    ASSERT_NE(mask, RouterMasks().end());
    const auto rule = std::ranges::find(FidelityRules(), row.rule, &FidelityRow::name);
    ASSERT_NE(rule, FidelityRules().end());
    const Cells expected = {std::string(row.name),
                            std::string(row.policy),
                            std::string(row.predictor),
                            StrCat(row.rule, row.mask == "none" ? "" : ", masked"),
                            std::string(std::max(rule->fidelity, mask->fidelity).class_name()),
                            row.cache == CacheKind::kOneToken ? "one token"
                            : row.cache == CacheKind::kAll    ? "all experts"
                                                              : "budget",
                            mask->chooses_residents ? "its own way"
                            : row.fill              ? "idle"
                                                    : "on demand"};
    EXPECT_THAT(Cells(table[i].begin(), table[i].begin() + 7), ElementsAreArray(expected));
  }
}

TEST(Reference, SaysEveryOptionsDefaultAndRange) {
  std::map<std::string, const OptionRow*> options;
  const auto add = [&](const auto& rows) {
    for (const auto& row : rows) {
      for (const OptionRow* option : row.options) options.emplace(option->name, option);
    }
  };
  add(Policies());
  add(Predictors());
  add(FidelityRules());
  add(RouterMasks());
  std::set<std::string> documented, there;
  for (const auto& [name, option] : options) there.insert(name);
  for (const Cells& cells : TableOf("option|of")) {
    documented.insert(cells[0]);
    const auto found = options.find(cells[0]);
    if (found == options.end()) continue;
    EXPECT_EQ(cells[2], found->second->initial) << cells[0];
    EXPECT_EQ(cells[3], found->second->Range()) << cells[0];
  }
  EXPECT_THAT(documented, ElementsAreArray(there));
}

}  // namespace reference_test
}  // namespace moed
