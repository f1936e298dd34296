// One model as the daemon serves it: its store, what memory was planned for it, the engine that runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "core/base/byte_share.h"
#include "core/base/clock.h"
#include "core/base/copier.h"
#include "core/base/executor.h"
#include "core/base/trace.h"
#include "core/chat/answer/answer_format.h"
#include "core/chat/model_template.h"
#include "core/engine/kv_spill.h"
#include "core/engine/step_engine.h"
#include "core/expert/provider.h"
#include "core/grammar/matcher_pool.h"
#include "core/io/read_backend.h"
#include "core/kernels/backend.h"
#include "core/model/kv_pool.h"
#include "core/model/model.h"
#include "core/serving/serving_plan.h"
#include "core/store/store.h"
#include "core/tokenizer/chat_settings.h"
#include "core/tokenizer/tokenizer.h"
#include "moe/v1/control.pb.h"
#include "server/rpc/model_change.h"
#include "server/rpc/server_state.h"
#include "server/served_cache.h"
#include "server/startup/config.h"
#include "server/startup/provider_builder.h"
#include "server/startup/routing_source.h"

namespace moed {

// Open, Load, Stop, Finish: one at a time, in this order. What it shares is thread-safe, and used by nobody when the model ends.
class ServedModel {
 public:
  // Reads what is small of config.store, plans the memory and looks at what was kept of the model; nothing large is allocated.
  // RESOURCE_EXHAUSTED with the table of needs when the budget is too small. `routing`: null, or in the place of the model's
  // router. `clock` and `routing` outlive it.
  static absl::StatusOr<std::unique_ptr<ServedModel>> Open(const Config& config, RoutingSource* routing, Clock& clock);
  ~ServedModel();

  const ServingPlan& plan() const { return plan_; }
  std::optional<uint64_t> resized_budget() const;  // the last; none: it is the plan's
  uint64_t largest_budget() const;                 // that it has had
  moe::v1::ServerInfo info() const;                // of the server as it serves this model, in its memory now
  const Config& config() const { return config_; }
  const std::string& store_path() const { return store_->path(); }
  std::string Title() const;  // family, sizes and store, for the log
  // Of a device's own memory: what is free of it says nothing while the model is there.
  bool on_own_memory() const { return &backend_->memory() != &BackendMemory::Host() && !backend_->memory().unified(); }

  // Called on the engine's thread; must not block.
  using ErrorHandler = std::function<void(const absl::Status&)>;
  // Reads the trunk and starts the engine; once. `change` hears how far it is, and may cancel it. `device_lost`: told the error
  // of a request, once the device does nothing any more. `engine_failed`: told once, where the engine ended by itself.
  absl::Status Load(ModelChange& change, ErrorHandler device_lost, ErrorHandler engine_failed);
  // What calls need of the model, after Load. To be asked for once.
  std::shared_ptr<const LoadedModel> Share();
  const LoadedModel& loaded() const { return loaded_; }
  // Whether nobody has it any more of all who were given what Share returned.
  bool WaitUntilUnused(absl::Duration limit) const { return unused_.WaitForNotificationWithTimeout(limit); }

  void Drain(absl::Status refusal) { engine_->Drain(std::move(refusal)); }
  // Ends every request with `reason`. Blocks until the step at hand and what the cache was asked for have ended.
  void Stop(absl::Status reason);
  // After Stop: writes the trace, what was learned and recorded, and the residency.
  absl::Status Finish();

 private:
  ServedModel(const Config& config, RoutingSource* routing, Clock& clock) : config_(config), routing_(routing), clock_(clock) {}

  absl::Status OpenStore();
  absl::Status ReadChatSettings(const ChatSettings& settings);
  absl::Status MakeBackend();
  absl::Status PlanMemory();
  absl::Status PlanGrowth();
  // What of the device holds experts, and who computes beside it.
  absl::Status OpenDeviceSlots(DeviceSlots& device);
  absl::Status LoadWeights(ModelChange& change);
  absl::Status StartEngine(ErrorHandler failed);
  void Describe(ErrorHandler device_lost);
  CallLimits LimitsOfCalls() const;
  std::string TracePath() const;
  absl::Status WriteTrace();

  const Config config_;
  RoutingSource* const routing_;
  Clock& clock_;

  // In the order in which they are needed; they end in the opposite one.
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<StoreReader> store_;
  ModelSpec spec_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<chat::ModelTemplate> chat_template_;
  uint64_t chat_template_bytes_ = 0;  // of its text
  const chat::AnswerFormat* answer_format_ = nullptr;
  moe::v1::Sampling sampling_defaults_;
  ServingPlan plan_;
  uint64_t most_budget_ = 0;  // that the memory plan may be given
  moe::v1::ServerInfo info_;  // but for its memory
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ComputeBackend> backend_;
  std::unique_ptr<ComputeBackend> processor_;  // beside a device; null: it computes nothing
  std::unique_ptr<KvPool> kv_;
  std::unique_ptr<KvSpill> kv_spill_;  // null: without --kv-spill
  std::unique_ptr<ReadBackend> reads_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Copier> copier_;  // null: no experts lie in memory of a device
  std::unique_ptr<ProviderBuilder> experts_;
  std::unique_ptr<ExpertProvider> routed_experts_;  // null: the provider itself
  std::optional<grammar::MatcherPool> formats_;     // the engine's requests have matchers of it
  std::optional<ByteShare> tool_schemas_;
  std::unique_ptr<ServedCache> cache_;  // tasks of the engine use it; its own, which use the engine, end in Stop
  std::unique_ptr<StepEngine> engine_;
  LoadedModel loaded_;
  absl::Notification unused_;
};

}  // namespace moed
