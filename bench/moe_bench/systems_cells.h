// What is compared: contenders, and the cells in which all of them run.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "moe/v1/inference.pb.h"

namespace moed {

// A preset, and what its requests ask for: "hobbit", "auto@bounded:0.2".
struct Contender {
  std::string preset;
  std::string fidelity_text;  // "": requests do not say
  std::optional<moe::v1::Fidelity> fidelity;
  std::string name() const { return fidelity_text.empty() ? preset : preset + "@" + fidelity_text; }
};

// Names separated by commas; "all" is every preset of the table and auto with some bounds. INVALID_ARGUMENT lists the known ones.
absl::StatusOr<std::vector<Contender>> ParseContenders(const std::string& text);

// "PRESET:NAME=VALUE,..." to the daemon's --preset-options, by preset.
absl::StatusOr<std::map<std::string, std::string>> ParseContenderOptions(const std::vector<std::string>& texts);

// How a turn goes on one disk. Slower disks get shorter prompts and answers, so that a turn keeps its time.
struct Protocol {
  int prompt_tokens = 0;
  int requests = 0;        // in a turn, one after the other
  int warm_up_tokens = 0;  // answer to a first request that does not count; 0: none
  int skipped_tokens = 0;  // of an answer, before counting begins
  int counted_tokens = 0;  // at most
  int turns = 0;
  double seconds = 0;  // of a turn, at most
};

struct Cell {
  int share = 0;           // percent of the expert bytes at the reference width that the cache may hold
  std::string disk;        // "native", "550 MB/s", "90 MB/s"
  uint64_t read_rate = 0;  // bytes a second; 0: what the disk gives
  Protocol protocol;
  std::string name() const;
};

std::vector<Cell> AllCells();
std::vector<Cell> QuickCells();

}  // namespace moed
