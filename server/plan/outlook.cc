#include "server/plan/outlook.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/executor.h"
#include "core/base/status.h"
#include "core/io/read_backend.h"
#include "core/kernels/backend.h"
#include "core/store/layout.h"

namespace moed {
namespace {

constexpr int kBetween = 3;  // budgets between the smallest and the comfortable one

// A decoded token goes through the decoder's layers alone.
DecodeWork WorkOf(const PlannedModel& model, const MemoryPlan& memory) {
  const StoreDescription& store = model.store;
  const auto decodes = [&](LayerId layer) { return !model.spec.IsEncoder(layer); };
  const uint64_t records = store.moe_layers.size() * static_cast<uint64_t>(store.experts_per_layer);
  const double mean = static_cast<double>(AllRecordBytes(store, kReferencePrecision)) * StoredShare(store, kReferencePrecision) /
                      static_cast<double>(records);
  return {.layers = model.spec.layers - (model.spec.encoder ? model.spec.encoder->layers : 0),
          .moe_layers = static_cast<int>(std::ranges::count_if(store.moe_layers, decodes)),
          .top_k = model.spec.top_k,
          .vocabulary = model.spec.vocabulary,
          .record_scale = mean / static_cast<double>(model.records.bytes),
          .cache_records = memory.cache / LargestRecordBytes(store.precisions[kReferencePrecision])};
}

BudgetOutlook LookAt(const PlannedModel& model, const MachineSpeed& machine, MemoryPlan memory, std::string_view name) {
  BudgetOutlook outlook{.name = name, .memory = std::move(memory)};
  const uint64_t all = AllRecordBytes(model.store, kReferencePrecision);
  outlook.expert_share = std::min(1.0, static_cast<double>(outlook.memory.cache) / static_cast<double>(all));
  const auto speed = [&](const HitCurve& curve) {
    return ExpectDecode(WorkOf(model, outlook.memory), machine.product_seconds, machine.disk, curve.At(outlook.expert_share));
  };
  outlook.expected = speed(DemoRouting());
  outlook.slowest = speed(UniformRouting());
  outlook.fastest = speed(GptOssRouting());
  return outlook;
}

}  // namespace

double MachineSpeed::KernelShare(const TokenBytes& token) const {
  return static_cast<double>(token.all()) / product_seconds / memory.bytes_per_second;
}

absl::StatusOr<MachineSpeed> MeasureMachine(const PlannedModel& model, const MeasureLimits& limits, const Clock& clock) {
  MachineSpeed speed;
  constexpr uint64_t kMostBytes = 128 << 20;  // beyond most caches
  const uint64_t bytes = std::min(kMostBytes, limits.memory_bytes);
  MOED_ASSIGN_OR_RETURN(speed.memory, MeasureMemoryBandwidth(limits.threads, bytes));
  const std::unique_ptr<Executor> executor = MakeThreadPool(limits.threads);
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<ComputeBackend> backend, MakeComputeBackend("auto", *executor));
  speed.kernels = backend->name();
  MOED_ASSIGN_OR_RETURN(speed.product_seconds,
                        MeasureTokenProducts(model.store, model.spec, *backend, {bytes, limits.seconds}, clock));
  const int depth = std::clamp(model.spec.top_k, 2, DiskReadLimits{}.depth);
  MOED_ASSIGN_OR_RETURN(const auto reads, OpenReadBackend("auto", model.weights, {}));
  speed.disk_backend = reads->name();
  // Small reads take longer where processors sleep, which those of the daemon do not: it has just computed.
  const auto compute = [&] { executor->ParallelFor(4 * limits.threads, 1, [](int, int) {}); };
  MOED_ASSIGN_OR_RETURN(speed.disk,
                        MeasureDiskRead(*reads, model.records, {.seconds = limits.seconds, .depth = depth}, clock, compute));
  return speed;
}

absl::StatusOr<Outlook> LookAhead(const PlannedModel& model, const MachineSpeed& machine, uint64_t chosen_budget, bool given,
                                  const ServingOptions& options) {
  Outlook outlook;
  const auto plan = [&](uint64_t budget) { return PlanServing(model.Inputs(budget, options)); };
  MOED_ASSIGN_OR_RETURN(ServingPlan chosen, plan(chosen_budget));
  outlook.chosen = LookAt(model, machine, std::move(chosen.memory), given ? "given" : "default");
  MOED_ASSIGN_OR_RETURN(outlook.budgets, FindServingBudgets(model.Inputs(0, options)));
  const uint64_t least = outlook.budgets.smallest.budget, most = outlook.budgets.comfortable.budget;
  outlook.others.push_back(LookAt(model, machine, outlook.budgets.smallest, "smallest"));
  for (int i = 1; i <= kBetween; ++i) {
    MOED_ASSIGN_OR_RETURN(ServingPlan between, plan(least + (most - least) / (kBetween + 1) * static_cast<uint64_t>(i)));
    outlook.others.push_back(LookAt(model, machine, std::move(between.memory), ""));
  }
  outlook.others.push_back(LookAt(model, machine, outlook.budgets.comfortable, "comfortable"));
  return outlook;
}

}  // namespace moed
