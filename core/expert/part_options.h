// Settings of the parts of a preset: "hobbit-t1=0.6,hobbit-t2=0.9". Every name belongs to one row of one table.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace moed {

struct OptionRow {
  std::string_view name;
  std::string_view help;
  std::string_view initial;
  double low = 0;  // of a number
  double high = 0;
};

class PartOptions {
 public:
  // NAME=VALUE, comma-separated; "" is none. INVALID_ARGUMENT for anything else and for a name given twice.
  static absl::StatusOr<PartOptions> Parse(std::string_view text);

  // INVALID_ARGUMENT for a name that is in none of `known`; lists them.
  absl::Status CheckKnown(std::span<const OptionRow* const> known) const;
  // What was given, else the row's initial value. INVALID_ARGUMENT names the option and what is allowed.
  absl::StatusOr<double> Number(const OptionRow& row) const;
  std::string Text(const OptionRow& row) const;
  // What is used where nothing was given, instead of the row's initial value.
  void SetDefault(const OptionRow& row, std::string value) { values_.emplace(row.name, std::move(value)); }
  bool empty() const { return values_.empty(); }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace moed
