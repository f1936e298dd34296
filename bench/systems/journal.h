// Finished measurements, one JSON line each, so that a run goes on where it was interrupted.
#pragma once

#include <compare>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace moed {

// Named numbers; a figure that could not be measured is absent.
using Figures = std::map<std::string, double>;

struct RecordKey {
  std::string kind;  // "speed" or "quality"
  int share = 0;
  std::string disk;
  std::string contender;
  int turn = 0;
  auto operator<=>(const RecordKey&) const = default;
};

struct Record {
  RecordKey key;
  Figures figures;
  std::string not_run;  // why there are no figures
};

class SystemsJournal {
 public:
  // Reads what `path` holds. `run`, an object, is what decides the figures (store, program, texts, protocol): FAILED_PRECONDITION
  // names what differs when the file was written by another run, DATA_LOSS a line that is none of its own; a last line that was
  // cut off is dropped.
  static absl::StatusOr<SystemsJournal> Open(const std::string& path, const nlohmann::ordered_json& run);

  absl::Status Add(Record record);
  const Record* Find(const RecordKey& key) const;
  const std::vector<Record>& records() const { return records_; }

 private:
  explicit SystemsJournal(std::string path) : path_(std::move(path)) {}
  std::string path_;
  std::vector<Record> records_;
};

}  // namespace moed
