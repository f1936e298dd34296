// The tables as text, for people: every row with what it does and its options.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/expert/part_options.h"

namespace moed {

struct ListedRow {
  std::string_view name;
  std::string description;
  std::string_view source = {};
  std::span<const OptionRow* const> options = {};
};
// A heading, then a row on lines of its own: name, description and source; below it each option with its default, range and unit.
std::string ListSection(std::string_view heading, const std::vector<ListedRow>& rows);

// Policies, predictors, fidelity rules, router masks and presets.
std::string ListParts();

}  // namespace moed
