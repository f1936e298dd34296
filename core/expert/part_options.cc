#include "core/expert/part_options.h"

#include <algorithm>
#include <charconv>

#include "core/base/status.h"

namespace moed {

absl::StatusOr<PartOptions> PartOptions::Parse(std::string_view text) {
  PartOptions options;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size()) {
      return InvalidArgument("\"", item, "\" is not NAME=VALUE");
    }
    const auto [at, added] = options.values_.emplace(item.substr(0, equals), item.substr(equals + 1));
    if (!added) return InvalidArgument(at->first, " is given twice");
  }
  return options;
}

absl::Status PartOptions::CheckKnown(std::span<const OptionRow* const> known) const {
  for (const auto& [name, value] : values_) {
    const auto is_it = [&name = name](const OptionRow* row) { return row->name == name; };
    if (std::any_of(known.begin(), known.end(), is_it)) continue;
    return InvalidArgument("unknown preset option \"", name, "\"; ",
                           known.empty()
                               ? "none are known here"
                               : StrCat("known here: ", JoinNames(known, [](const OptionRow* row) { return row->name; })));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> PartOptions::Number(const OptionRow& row) const {
  const std::string text = Text(row);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= row.low && value <= row.high)) {
    return InvalidArgument(row.name, ": \"", text, "\" is not a number from ", row.low, " to ", row.high);
  }
  return value;
}

std::string PartOptions::Text(const OptionRow& row) const {
  const auto found = values_.find(row.name);
  return found == values_.end() ? std::string(row.initial) : found->second;
}

}  // namespace moed
