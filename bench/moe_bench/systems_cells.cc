#include "bench/moe_bench/systems_cells.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/fidelity.h"
#include "core/base/status.h"
#include "core/expert/preset.h"

namespace moed {
namespace {

// A cell takes at most turns x seconds = 60.
constexpr Protocol kNative{.prompt_tokens = 64,
                           .requests = 2,
                           .warm_up_tokens = 8,
                           .skipped_tokens = 4,
                           .counted_tokens = 48,
                           .turns = 3,
                           .seconds = 20};
constexpr Protocol kSlow{.prompt_tokens = 16,
                         .requests = 1,
                         .warm_up_tokens = 0,
                         .skipped_tokens = 3,
                         .counted_tokens = 48,
                         .turns = 2,
                         .seconds = 30};
constexpr Protocol kSlowest{
    .prompt_tokens = 8, .requests = 1, .warm_up_tokens = 0, .skipped_tokens = 2, .counted_tokens = 32, .turns = 1, .seconds = 60};
constexpr Protocol kQuickNative{
    .prompt_tokens = 64, .requests = 1, .warm_up_tokens = 8, .skipped_tokens = 2, .counted_tokens = 24, .turns = 2, .seconds = 8};
constexpr Protocol kQuickSlow{
    .prompt_tokens = 8, .requests = 1, .warm_up_tokens = 0, .skipped_tokens = 2, .counted_tokens = 16, .turns = 2, .seconds = 9};

constexpr std::string_view kNativeDisk = "native";
constexpr uint64_t kSata = 550'000'000;
constexpr uint64_t kSdCard = 90'000'000;
constexpr int kShares[] = {10, 25, 50, 75, 100};

// What auto may lose in some further rows.
constexpr std::string_view kBounds[] = {"bounded:0.1", "bounded:0.2", "bounded:0.4"};

Cell OnNative(int share, const Protocol& protocol) { return {share, std::string(kNativeDisk), 0, protocol}; }
Cell OnSlow(int share, uint64_t rate, const Protocol& protocol) {
  return {share, StrCat(rate / 1'000'000, " MB/s"), rate, protocol};
}

std::vector<std::string> KnownContenders() {
  std::vector<std::string> names;
  for (const PresetRow& row : Presets()) {
    names.emplace_back(row.name);
    if (row.name != "auto") continue;
    for (std::string_view bound : kBounds) names.push_back(StrCat(row.name, "@", bound));
  }
  return names;
}

absl::StatusOr<Contender> ParseContender(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('@', 1));
  Contender contender{parts.first, parts.second, std::nullopt};
  const auto presets = Presets();
  if (std::ranges::find(presets, contender.preset, &PresetRow::name) == presets.end()) {
    return InvalidArgument("--presets: unknown preset \"", contender.preset, "\"; known are: all, ",
                           JoinNames(presets, [](const PresetRow& row) { return row.name; }));
  }
  MOED_ASSIGN_OR_RETURN(contender.fidelity, ParseFidelity(contender.fidelity_text));
  return contender;
}

}  // namespace

absl::StatusOr<std::vector<Contender>> ParseContenders(const std::string& text) {
  std::vector<std::string> names = absl::StrSplit(text, ',');
  if (text == "all") names = KnownContenders();
  std::vector<Contender> contenders;
  for (const std::string& name : names) {
    MOED_ASSIGN_OR_RETURN(Contender contender, ParseContender(name));
    if (std::ranges::find(contenders, contender.name(), &Contender::name) != contenders.end()) {
      return InvalidArgument("--presets: \"", contender.name(), "\" is there twice");
    }
    contenders.push_back(std::move(contender));
  }
  return contenders;
}

absl::StatusOr<std::map<std::string, std::string>> ParseContenderOptions(const std::vector<std::string>& texts) {
  std::map<std::string, std::string> options;
  for (const std::string& text : texts) {
    const size_t colon = text.find(':');
    if (colon == std::string::npos || text.find('=', colon) == std::string::npos) {
      return InvalidArgument("--options \"", text, "\": expected PRESET:NAME=VALUE,...");
    }
    const std::string preset = text.substr(0, colon);
    MOED_RETURN_IF_ERROR(ParseContender(preset).status());
    std::string& known = options[preset];
    known += StrCat(known.empty() ? "" : ",", text.substr(colon + 1));
  }
  return options;
}

std::string Cell::name() const { return StrCat(share, " %, ", disk); }

std::vector<Cell> AllCells() {
  std::vector<Cell> cells;
  for (int share : kShares) cells.push_back(OnNative(share, kNative));
  cells.push_back(OnSlow(25, kSata, kSlow));
  cells.push_back(OnSlow(25, kSdCard, kSlowest));
  return cells;
}

std::vector<Cell> QuickCells() { return {OnNative(25, kQuickNative), OnSlow(25, kSata, kQuickSlow)}; }

}  // namespace moed
