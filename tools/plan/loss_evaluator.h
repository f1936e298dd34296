// What a text costs a store's model under any rule for its experts: the measure of every planner.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/executor.h"
#include "core/expert/cache/caching_provider.h"
#include "core/expert/fidelity/mask.h"
#include "core/expert/fidelity/rule.h"
#include "core/expert/part_context.h"
#include "core/io/read_backend.h"
#include "core/kernels/backend.h"
#include "core/model/kv_pool.h"
#include "core/model/model.h"
#include "core/store/store.h"
#include "tools/plan/scored_text.h"

namespace moed {

struct LossOptions {
  int tokens = 4096;         // of the text, from its start, or of an encoder-decoder's targets; >= 2
  int window = 256;          // tokens of a text that see each other; >= 2
  int threads = 1;           // that compute
  uint64_t cache_bytes = 0;  // for experts; at least one record of every precision
};

// Every expert at a precision of its own, by [MoE layer][expert].
class AssignedPrecisions final : public FidelityRule {
 public:
  AssignedPrecisions(const StoreDescription& store, std::vector<Precision> precisions);
  void Resolve(const LayerDemand& demand, std::span<Action> actions) override;

 private:
  std::vector<int> first_;  // by layer id: index of its expert 0, -1 for dense
  std::vector<Precision> precisions_;
};

// One model, loaded once, on the production's expert path. One thread's at a time.
class LossEvaluator {
 public:
  // `text` is JSON lines of pairs for an encoder-decoder. INVALID_ARGUMENT as ScoredText has it, and for a prefix-LM, whose
  // prompts are not scored.
  static absl::StatusOr<std::unique_ptr<LossEvaluator>> Open(const std::string& store_path, std::string_view text,
                                                             const LossOptions& options);
  LossEvaluator(const LossEvaluator&) = delete;
  ~LossEvaluator();

  // Mean of -log p(token) in nats over the scored tokens, the true tokens before each and its source being given. `rule` and
  // `mask` (may be null) decide for every token. The same bits whatever was measured before, and whatever threads and cache.
  // CANCELLED soon after `cancelled` returns true.
  absl::StatusOr<double> Loss(FidelityRule& rule, RouterMask* mask, bool (*cancelled)());
  // Every `step`-th window from `first` on alone: the sums of their nats, and their tokens that are scored.
  struct Pieces {
    std::vector<double> nats;
    std::vector<int> tokens;
    double Mean() const;
  };
  absl::StatusOr<Pieces> LossOfWindows(int first, int step, FidelityRule& rule, bool (*cancelled)());
  // The text's windows one by one: the sum of a window's nats.
  int windows() const { return text_.windows(); }
  absl::StatusOr<double> WindowNats(int window, FidelityRule& rule, RouterMask* mask, StepWatcher* watcher = nullptr);

  const StoreReader& store() const { return *store_; }
  const ModelSpec& spec() const { return spec_; }
  Executor& executor() { return *executor_; }
  int experts() const;  // of all layers
  uint64_t tokens_hash() const { return text_.Hash(); }
  int scored_tokens() const { return text_.scored_tokens(); }
  int WindowTokens(int window) const { return text_.scored(window); }  // that are scored
  GateFn gate();                                                       // for rules and masks, while a loss is measured

 private:
  class SwitchedRule;
  class SwitchedMask;
  LossEvaluator() = default;
  absl::Status Load(const std::string& store_path, const LossOptions& options);
  absl::StatusOr<ScoredText> TakeText(std::string_view text, const LossOptions& options) const;

  uint64_t next_sequence_ = 1;
  ScoredText text_;
  ModelSpec spec_;
  std::unique_ptr<StoreReader> store_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ComputeBackend> backend_;
  std::unique_ptr<ReadBackend> reads_;
  std::unique_ptr<KvPool> kv_;
  std::unique_ptr<Model> model_;
  SwitchedRule* rule_ = nullptr;  // the provider's
  SwitchedMask* mask_ = nullptr;
  std::unique_ptr<CachingProvider> provider_;
};

}  // namespace moed
