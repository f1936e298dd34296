// The demo model, or a store of the test's own, on the real expert path, put together as the daemon does it, for tests that vary
// one part at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/executor.h"
#include "core/base/trace.h"
#include "core/expert/cache/caching_provider.h"
#include "core/io/read_backend.h"
#include "core/kernels/backend.h"
#include "core/model/kv_pool.h"
#include "core/model/model.h"
#include "core/store/store.h"

namespace moed::testing {

// models/tales-qwen packed by moed-pack at these formats, with --coded=N where `coded` is not 0; packed once for each test
// program and such a choice.
const std::string& DemoStorePath(const std::string& expert_formats, int coded = 0);

struct RigOptions {
  std::string expert_formats = "q8";
  int coded = 0;
  std::string store;  // not empty: the path of another model's store, and neither of these is looked at
  std::string policy = "lru";
  std::string predictor = "none";
  std::string preset;          // not empty: all parts are the preset's, policy and predictor are not looked at
  std::string preset_options;  // NAME=VALUE,...
  std::optional<bool> fill;    // absent: the preset's
  Fidelity fidelity;
  std::string io_backend = "direct";
  std::string compute = "auto";
  int threads = 1;
  int slots = 64;                     // capacity in records
  int most_slots = 0;                 // that it may become
  double bring_seconds_per_byte = 0;  // to the device, where the processor may compute in its place; 0: it may not
  int device_slots = 0;               // likewise, in memory of the backend's device's own
  int max_step_tokens = 32;
  int own_step_tokens = 0;  // with which the cache lends memory for larger steps, beside its slots
  int max_context = 128;
  int kv_pages = 32;
  KvFormat kv_format = KvFormat::kF16;  // the daemon's default
  int max_reads_in_flight = 0;
  Trace* trace = nullptr;
};

// Owns everything between the store and the logits. Failures end the test program: the rig is no subject of a test.
class Rig {
 public:
  explicit Rig(const RigOptions& options);
  // With parts of the test's own in place of the real ones; null = the real one. They outlive the rig.
  Rig(const RigOptions& options, ReadBackend* reads, ComputeBackend* backend);

  // Greedy tokens after `prompt`; the prompt is computed in pieces of `chunk`. `logits` collects every row computed, when not
  // null.
  std::vector<TokenId> Greedy(const std::vector<TokenId>& prompt, int new_tokens, int chunk,
                              std::vector<float>* logits = nullptr);
  // The same for several prompts at once: decode steps share one batch.
  // `fidelities`: of each prompt; empty: as the options say.
  std::vector<std::vector<TokenId>> GreedyTogether(const std::vector<std::vector<TokenId>>& prompts, int new_tokens, int chunk,
                                                   const std::vector<Fidelity>& fidelities = {});
  // Of the sequence that ended last.
  const SequenceCounters& last_counters() const { return last_counters_; }

  Model& model() { return *model_; }
  KvPool& kv() { return *kv_; }
  uint64_t record_bytes() const { return store_->largest_expert_bytes(kReferencePrecision); }
  CachingProvider& provider() { return *provider_; }
  std::function<void()> before_step;   // null: nothing
  ExpertProvider* recorder = nullptr;  // stands before the provider when set

 private:
  struct Stream;
  void EndStream(Stream& stream);
  void Step(std::vector<Stream*>& streams, int chunk, std::vector<float>* logits);

  std::unique_ptr<StoreReader> store_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ComputeBackend> own_backend_;
  std::unique_ptr<ComputeBackend> processor_;
  std::unique_ptr<ReadBackend> own_reads_;
  std::unique_ptr<KvPool> kv_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Copier> copier_;
  std::unique_ptr<CachingProvider> provider_;
  uint64_t next_sequence_ = 1;
  Fidelity fidelity_;
  SequenceCounters last_counters_;
};

std::vector<TokenId> Tokens(std::initializer_list<int> ids);

}  // namespace moed::testing
