// The cells in which all contenders run: how much cache on which disk, and how a turn goes there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace moed {

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
  int share = 0;           // percent of the expert bytes at the reference width that the cache may hold; 0: `budget` says
  uint64_t budget = 0;     // --memory-budget; 0: the share says
  std::string disk;        // "native", "550 MB/s", "90 MB/s"
  uint64_t read_rate = 0;  // bytes a second; 0: what the disk gives
  Protocol protocol;
  std::string name() const;
};

std::vector<Cell> AllCells();
std::vector<Cell> QuickCells();

// What a command line asks for.
struct CellChoice {
  bool quick = false;
  uint64_t budget = 0;             // one cell of this memory budget on the native disk instead of all others
  bool recorded = false;           // the routing is: prompts are one token, the number of a sequence
  std::vector<int> shares;         // empty: all
  std::vector<std::string> disks;  // "native", "550", "90"; empty: all
  double seconds = 0;              // of a turn on the native disk, slower ones in proportion; 0: the cells' own
  int turns = 0;                   // at most; 0: the cells' own
};
// INVALID_ARGUMENT: a share or a disk that no cell has; lists them; either of them beside a budget.
absl::StatusOr<std::vector<Cell>> ChooseCells(const CellChoice& choice);

}  // namespace moed
