#include "bench/systems/cells.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "core/base/status.h"

namespace moed {
namespace {

// A cell takes at most turns x seconds = 60.
constexpr Protocol kNative{.prompt_tokens = 64,
                           .requests = 2,
                           .warm_up_tokens = 8,
                           .skipped_tokens = 4,
                           .counted_tokens = 48,
                           .turns = 3,
                           .seconds = 10};
constexpr Protocol kSlow{
    .prompt_tokens = 8, .requests = 1, .warm_up_tokens = 0, .skipped_tokens = 2, .counted_tokens = 32, .turns = 3, .seconds = 20};
constexpr Protocol kSlowest{
    .prompt_tokens = 2, .requests = 1, .warm_up_tokens = 0, .skipped_tokens = 1, .counted_tokens = 16, .turns = 1, .seconds = 60};
constexpr Protocol kQuickNative{
    .prompt_tokens = 64, .requests = 1, .warm_up_tokens = 8, .skipped_tokens = 2, .counted_tokens = 24, .turns = 2, .seconds = 6};
constexpr Protocol kQuickSlow{
    .prompt_tokens = 8, .requests = 1, .warm_up_tokens = 0, .skipped_tokens = 2, .counted_tokens = 16, .turns = 2, .seconds = 9};

// Long enough that the cache knows the conversations: half of a turn's time, at most, goes into a first one.
constexpr Protocol kBudget{.prompt_tokens = 64,
                           .requests = 1,
                           .warm_up_tokens = 128,
                           .skipped_tokens = 4,
                           .counted_tokens = 96,
                           .turns = 3,
                           .seconds = 40};

constexpr std::string_view kNativeDisk = "native";
constexpr uint64_t kSata = 550'000'000;
constexpr uint64_t kSdCard = 90'000'000;
constexpr int kShares[] = {10, 25, 50, 75, 100};

Cell OnNative(int share, const Protocol& protocol) { return {share, 0, std::string(kNativeDisk), 0, protocol}; }
Cell OnSlow(int share, uint64_t rate, const Protocol& protocol) {
  return {share, 0, StrCat(rate / 1'000'000, " MB/s"), rate, protocol};
}

// "550" of "550 MB/s".
std::string ShortName(const Cell& cell) { return cell.disk.substr(0, cell.disk.find(' ')); }

// Of the cells' names, each once, in their order.
std::vector<std::string> Names(const std::vector<Cell>& cells, std::string (*name)(const Cell&)) {
  std::vector<std::string> names;
  for (const Cell& cell : cells) {
    if (std::ranges::find(names, name(cell)) == names.end()) names.push_back(name(cell));
  }
  return names;
}

// Leaves the cells whose name is among `wanted`.
absl::Status Keep(std::string_view flag, const std::vector<std::string>& wanted, std::string (*name)(const Cell&),
                  std::vector<Cell>& cells) {
  if (wanted.empty()) return absl::OkStatus();
  const std::vector<std::string> known = Names(cells, name);
  for (const std::string& one : wanted) {
    if (std::ranges::find(known, one) == known.end()) {
      return InvalidArgument(flag, ": no cell has ", one, "; known are ", absl::StrJoin(known, ", "));
    }
  }
  std::erase_if(cells, [&](const Cell& cell) { return std::ranges::find(wanted, name(cell)) == wanted.end(); });
  return absl::OkStatus();
}

}  // namespace

std::string Cell::name() const {
  return StrCat(budget > 0 ? StrCat(budget / 1'000'000, " MB") : StrCat(share, " %"), ", ", disk);
}

std::vector<Cell> AllCells() {
  std::vector<Cell> cells;
  for (int share : kShares) cells.push_back(OnNative(share, kNative));
  cells.push_back(OnSlow(25, kSata, kSlow));
  cells.push_back(OnSlow(25, kSdCard, kSlowest));
  return cells;
}

std::vector<Cell> QuickCells() { return {OnNative(25, kQuickNative), OnSlow(25, kSata, kQuickSlow)}; }

absl::StatusOr<std::vector<Cell>> ChooseCells(const CellChoice& choice) {
  if (choice.budget > 0 && (choice.quick || !choice.shares.empty() || !choice.disks.empty())) {
    return InvalidArgument("--memory-budget is one cell on the native disk: without --quick, --shares and --disks");
  }
  std::vector<Cell> cells = choice.budget > 0 ? std::vector<Cell>{{0, choice.budget, std::string(kNativeDisk), 0, kBudget}}
                            : choice.quick    ? QuickCells()
                                              : AllCells();
  const double native_seconds = cells.front().protocol.seconds;
  std::vector<std::string> shares;
  for (int share : choice.shares) shares.push_back(StrCat(share));
  MOED_RETURN_IF_ERROR(Keep(
      "--shares", shares, [](const Cell& cell) { return StrCat(cell.share); }, cells));
  MOED_RETURN_IF_ERROR(Keep("--disks", choice.disks, ShortName, cells));
  for (Cell& cell : cells) {
    Protocol& protocol = cell.protocol;
    if (choice.recorded) protocol.prompt_tokens = 1;
    if (choice.turns > 0) protocol.turns = std::min(protocol.turns, choice.turns);
    if (choice.seconds > 0) protocol.seconds = std::min(60.0, protocol.seconds * choice.seconds / native_seconds);
  }
  return cells;
}

}  // namespace moed
