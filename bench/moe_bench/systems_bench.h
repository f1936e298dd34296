// What every measurement of `moe-bench systems` needs, made once by a daemon that only looks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/moe_bench/daemon.h"
#include "bench/moe_bench/systems_cells.h"

namespace moed {

// What the process may need beside --memory-budget.
inline constexpr uint64_t kBesideBudgetBytes = uint64_t{64} << 20;

// Texts of one kind as token ids, from which prompts are cut.
struct PromptKind {
  std::string name;
  std::vector<int> ids;
};
// Piece `index` of `tokens` ids; other indices give other pieces.
std::vector<int> PromptOf(const PromptKind& kind, int tokens, int index);

struct SystemsBench {
  std::string program;  // moed
  std::string store;
  std::vector<std::string> flags;              // of every daemon
  std::map<std::string, std::string> options;  // --preset-options by preset
  int max_context = 0;
  std::vector<PromptKind> prompts;
  std::vector<int> quality_ids;
  moe::v1::ModelInfo model;
  std::string version;
  std::map<int, uint64_t> budgets;  // --memory-budget by share

  uint64_t reference_expert_bytes() const {
    return static_cast<uint64_t>(model.moe_layers()) * static_cast<uint64_t>(model.experts()) * model.expert_bytes();
  }
  // The daemon of a contender in a cell.
  absl::StatusOr<std::unique_ptr<Daemon>> StartDaemon(const Contender& contender, const Cell& cell,
                                                      const std::vector<std::string>& more = {}) const;
};

struct BenchTexts {
  std::string prompts;  // a file, or a folder whose files are one kind each
  std::string quality;  // a file
  int quality_tokens = 0;
};

// Fills in model, texts and, for every share, the budget with which load-on-demand-lru has that share of the reference experts as
// cache: the budget of all contenders.
absl::Status Prepare(SystemsBench& bench, const BenchTexts& texts, const std::vector<Cell>& cells);

}  // namespace moed
