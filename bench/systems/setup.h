// What every measurement of `moe-bench systems` needs, made once by a daemon that only looks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/replay/routing_trace_reader.h"
#include "bench/systems/cells.h"
#include "bench/systems/contender.h"
#include "bench/systems/daemon.h"

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

// Takes the first half of every kind away and returns it.
std::vector<PromptKind> SplitForLearning(std::vector<PromptKind>& kinds);

// Of names and token ids.
std::string HashOfTexts(const std::vector<PromptKind>& kinds);
// Of a file's bytes. NOT_FOUND when it cannot be read.
absl::StatusOr<std::string> HashOfFile(const std::string& path);

struct SystemsBench {
  std::string program;       // moed
  std::string program_hash;  // of the file
  std::string store;
  std::vector<std::string> flags;  // of every daemon
  std::vector<GivenOption> options;
  std::string learned_folder;  // what contenders learned before the first turn
  int max_context = 0;
  std::vector<PromptKind> prompts;
  std::vector<PromptKind> learning;  // other texts than the prompts
  std::vector<int> quality_ids;
  moe::v1::ModelInfo model;
  std::string version;
  std::map<int, uint64_t> budgets;  // --memory-budget by share
  // Where the routing is recorded: prompts are then numbers of its sequences. Null: the model routes itself.
  std::shared_ptr<const RoutingTrace> recorded;
  std::string recorded_directory;

  uint64_t reference_expert_bytes() const { return model.all_expert_bytes(); }
  // Where a contender's --learned-state is that every turn begins with a copy of.
  std::string LearnedPath(const Contender& contender, int share) const;
  // The daemon of a contender in a cell. NOT_FOUND: the program, or what the contender has learned.
  absl::StatusOr<std::unique_ptr<Daemon>> StartDaemon(const Contender& contender, const Cell& cell,
                                                      const std::vector<std::string>& more = {}) const;
};

struct BenchTexts {
  std::string prompts;   // a file, or a folder whose files are one kind each
  std::string learning;  // the same; "": the first half of every kind of prompts, which are then cut from the second half
  std::string quality;   // a file
  int quality_tokens = 0;
};

// Fills in the program's hash, model, texts (but where the routing is recorded) and, for every share, the budget with which
// load-on-demand-lru has that share of the reference experts as cache: the budget of all contenders. A cell's own budget is
// taken.
absl::Status Prepare(SystemsBench& bench, const BenchTexts& texts, const std::vector<Cell>& cells);

}  // namespace moed
