// Settings of the parts of a preset: "hobbit-t1=0.6,hobbit-t2=0.9". An option is one object, which the rows of all parts that it
// is for list: its name, default and range are said once.
#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/check.h"

namespace moed {

class StoreReader;

// A number from `low` to `high`, one of `words`, or a file that `read` reads.
struct OptionRow {
  std::string_view name;
  std::string_view help;
  std::string_view initial;  // "" of a file: none
  double low = 0;
  double high = 0;
  std::string_view unit = {};
  std::string_view source = "ours";
  std::span<const std::string_view> words = {};
  bool whole = false;  // a number without fractions
  // A std::shared_ptr<const T> to what the file holds, checked against the store. Errors name option and file.
  absl::StatusOr<std::any> (*read)(const std::string& path, const StoreReader& store) = nullptr;
  // Of what was read; null: not worth counting. Counted once, however many parts use it.
  uint64_t (*file_bytes)(const std::any& contents) = nullptr;

  std::string Range() const;  // "0 to 1", "on or off", "file"
};
// The same row, of a number without fractions.
constexpr OptionRow Whole(OptionRow row) {
  row.whole = true;
  return row;
}

struct OptionValue {
  const OptionRow* option;
  std::string_view value;
};

// Options are found by their names.
class PartOptions {
 public:
  // NAME=VALUE, comma-separated; "" is none. INVALID_ARGUMENT for anything else and for a name given twice.
  static absl::StatusOr<PartOptions> Parse(std::string_view text);

  // Says which options the chosen parts have. INVALID_ARGUMENT for a name given that is none of theirs, which lists them, and for
  // a value that is not allowed.
  absl::Status SetKnown(std::vector<const OptionRow*> known);
  absl::Status ReadFiles(const StoreReader& store);
  uint64_t file_bytes() const;  // what ReadFiles read and holds
  void Set(const OptionRow& row, std::string_view value) { values_.insert_or_assign(std::string(row.name), std::string(value)); }
  template <class T>
  void SetFile(const OptionRow& row, std::shared_ptr<const T> contents) {
    files_.insert_or_assign(row.name, std::move(contents));
  }

  bool Given(const OptionRow& row) const { return values_.contains(row.name); }
  // Of a file: it was named, and ReadFiles is yet to come.
  bool Unread(const OptionRow& row) const { return Given(row) && !files_.contains(row.name); }
  // Whether a part that was chosen has it; what was given, it has.
  bool Has(const OptionRow& row) const;

  // What was given, else the row's initial value. INVALID_ARGUMENT names the option and what is allowed.
  absl::StatusOr<double> Number(const OptionRow& row) const;
  absl::StatusOr<int> WholeNumber(const OptionRow& row) const;
  // Which of row.words, from 0 on.
  absl::StatusOr<size_t> Word(const OptionRow& row) const;
  // What the file holds; null where none was given.
  template <class T>
  std::shared_ptr<const T> File(const OptionRow& row) const {
    const auto found = files_.find(row.name);
    if (found == files_.end()) return nullptr;
    const auto* contents = std::any_cast<std::shared_ptr<const T>>(&found->second);
    MOED_CHECK(contents != nullptr);
    return *contents;
  }

 private:
  absl::Status CheckValue(const OptionRow& row) const;
  std::string_view Text(const OptionRow& row) const;

  std::map<std::string, std::string, std::less<>> values_;
  std::vector<const OptionRow*> known_;
  std::map<std::string_view, std::any> files_;
};

}  // namespace moed
