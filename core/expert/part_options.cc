#include "core/expert/part_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"
#include "core/base/status.h"

namespace moed {

std::string OptionRow::Range() const {
  if (read != nullptr) return "file";
  if (!words.empty()) {
    std::string range;
    for (const std::string_view word : words) range += StrCat(range.empty() ? "" : " or ", word);
    return range;
  }
  return absl::StrFormat("%.10g to %.10g", low, high);
}

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

absl::Status PartOptions::SetKnown(std::vector<const OptionRow*> known) {
  for (const auto& [name, value] : values_) {
    const auto is_it = [&name = name](const OptionRow* row) { return row->name == name; };
    if (std::ranges::any_of(known, is_it)) continue;
    return InvalidArgument("unknown preset option \"", name, "\"; ",
                           known.empty()
                               ? "none are known here"
                               : StrCat("known here: ", JoinNames(known, [](const OptionRow* row) { return row->name; })));
  }
  for (const OptionRow* row : known) MOED_RETURN_IF_ERROR(CheckValue(*row));
  known_ = std::move(known);
  return absl::OkStatus();
}

absl::Status PartOptions::ReadFiles(const StoreReader& store) {
  for (const OptionRow* row : known_) {
    if (row->read == nullptr || !Given(*row)) continue;
    MOED_ASSIGN_OR_RETURN(std::any contents, row->read(std::string(Text(*row)), store));
    files_.insert_or_assign(row->name, std::move(contents));
  }
  return absl::OkStatus();
}

uint64_t PartOptions::file_bytes() const {
  uint64_t bytes = 0;
  for (const OptionRow* row : known_) {
    const auto found = files_.find(row->name);
    if (found != files_.end() && row->file_bytes != nullptr) bytes += row->file_bytes(found->second);
  }
  return bytes;
}

bool PartOptions::Has(const OptionRow& row) const {
  const auto is_it = [&row](const OptionRow* known) { return known->name == row.name; };
  return Given(row) || std::ranges::any_of(known_, is_it);
}

absl::StatusOr<double> PartOptions::Number(const OptionRow& row) const {
  const std::string_view text = Text(row);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= row.low && value <= row.high)) {
    return InvalidArgument(row.name, ": \"", text, "\" is not a number from ", row.Range());
  }
  return value;
}

absl::StatusOr<int> PartOptions::WholeNumber(const OptionRow& row) const {
  MOED_CHECK(row.whole);
  MOED_ASSIGN_OR_RETURN(const double value, Number(row));
  if (value != std::trunc(value)) return InvalidArgument(row.name, ": \"", Text(row), "\" is not a whole number");
  return static_cast<int>(value);
}

absl::StatusOr<size_t> PartOptions::Word(const OptionRow& row) const {
  const std::string_view text = Text(row);
  const auto word = std::ranges::find(row.words, text);
  if (word != row.words.end()) return static_cast<size_t>(word - row.words.begin());
  return InvalidArgument(row.name, ": \"", text, "\"; allowed are: ", JoinNames(row.words, [](std::string_view w) { return w; }));
}

absl::Status PartOptions::CheckValue(const OptionRow& row) const {
  if (row.read != nullptr) return absl::OkStatus();  // its errors say more
  if (!row.words.empty()) return Word(row).status();
  return row.whole ? WholeNumber(row).status() : Number(row).status();
}

std::string_view PartOptions::Text(const OptionRow& row) const {
  const auto found = values_.find(row.name);
  return found == values_.end() ? row.initial : std::string_view(found->second);
}

}  // namespace moed
