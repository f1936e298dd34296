// Look-up by name in the tables of policies, predictors, masks and fidelity rules.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/base/status.h"

namespace moed {

// INVALID_ARGUMENT lists the known names; `what` names the kind: "policy".
template <class Row>
absl::StatusOr<const Row*> FindRow(std::span<const Row> rows, std::string_view what, std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) return &row;
  }
  return InvalidArgument("unknown ", what, " \"", name, "\"; known: ", JoinNames(rows, [](const Row& row) { return row.name; }));
}

}  // namespace moed
