// What ControlService tells of the server: records of the engine, the experts and the model, as messages.
#include "server/rpc/control_replies.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "server/metrics/lookup_totals.h"
#include "server/process/process_metrics.h"
#include "server/wire/error_details.h"

namespace moed {
namespace {

constexpr int kMaxSessions = 1000;
constexpr int kDefaultSessions = 100;
constexpr int kMaxMappedExperts = 1 << 16;

absl::StatusOr<int64_t> WindowNanos(const moe::v1::GetStatsRequest& request) {
  if (!request.has_window()) return kDefaultWindowNanos;
  const auto& window = request.window();
  const bool sane = window.seconds() >= 0 && window.seconds() <= 60 && window.nanos() >= 0 && window.nanos() <= 999999999;
  const int64_t nanos = sane ? window.seconds() * 1'000'000'000 + window.nanos() : 0;
  if (nanos <= 0 || nanos > kMaxWindowNanos) return FieldError("window", "must be above 0 and at most 60 s");
  return nanos;
}

void FillPhase(const ExpertStats& experts, Phase phase, moe::v1::PhaseStats& out) {
  const auto index = static_cast<size_t>(phase);
  for (const LayerStats& layer : experts.layers) {
    const auto& by_result = layer.lookups[index];
    out.set_expert_hits(out.expert_hits() + by_result[static_cast<size_t>(LookupResult::kHit)]);
    out.set_expert_misses(out.expert_misses() + by_result[static_cast<size_t>(LookupResult::kMiss)] +
                          by_result[static_cast<size_t>(LookupResult::kInflight)]);
  }
  out.set_stall_seconds(experts.stall_seconds[index]);
  const PredictionCounts& predictions = experts.predictions[index];
  out.set_predictions_guessed(predictions.guessed);
  out.set_predictions_routed(predictions.routed);
  out.set_predictions_right(predictions.right);
}

void FillDeviceTier(const DeviceTierStats& device, moe::v1::DeviceTier& out) {
  out.set_bytes(device.bytes);
  out.set_capacity_bytes(device.capacity_bytes);
  out.set_used_there(device.UsesOf(TierUse::kOnDevice));
  out.set_used_over_the_bus(device.UsesOf(TierUse::kOverTheBus));
  out.set_used_by_processor(device.UsesOf(TierUse::kOnProcessor));
  out.set_copied_to_device_bytes(device.risen_bytes);
  out.set_copied_to_host_bytes(device.sunk_bytes);
}

void FillLayer(const LayerCells& cells, moe::v1::LayerExperts& out) {
  const int count = static_cast<int>(cells.experts.size());
  out.set_layer(cells.layer.value());
  for (auto* list : {out.mutable_expert(), out.mutable_resident(), out.mutable_on_device()}) list->Reserve(count);
  for (auto* list :
       {out.mutable_hits(), out.mutable_misses(), out.mutable_lowered(), out.mutable_skipped(), out.mutable_reads()}) {
    list->Reserve(count);
  }
  for (const ExpertCell& cell : cells.experts) {
    out.add_expert(static_cast<uint32_t>(cell.expert));
    out.add_resident(cell.resident);
    out.add_on_device(cell.on_device);
    out.add_hits(cell.hits);
    out.add_misses(cell.misses);
    out.add_lowered(cell.lowered);
    out.add_skipped(cell.skipped);
    out.add_reads(cell.reads);
  }
}

}  // namespace

void FillMemory(const std::vector<MemoryPart>& parts, google::protobuf::RepeatedPtrField<moe::v1::MemoryPart>& out) {
  out.Clear();
  for (const MemoryPart& part : parts) {
    auto* memory = out.Add();
    memory->set_part(part.name);
    memory->set_bytes(part.bytes);
  }
}

void FillProgress(const ModelChange::State& now, moe::v1::LoadModelProgress& out) {
  out.set_phase(std::string(PhaseName(now.phase)));
  out.set_done_bytes(std::min(now.done_bytes, now.all_bytes));
  out.set_all_bytes(now.all_bytes);
  if (now.done_bytes == 0 || now.seconds <= 0) return;
  const double rate = static_cast<double>(now.done_bytes) / now.seconds;
  out.set_bytes_per_second(rate);
  out.set_seconds_left(static_cast<double>(out.all_bytes() - out.done_bytes()) / rate);
}

absl::Status ControlService::FillStats(const moe::v1::GetStatsRequest& request, moe::v1::Stats& out) const {
  MOED_ASSIGN_OR_RETURN(const int64_t window_nanos, WindowNanos(request));
  MOED_ASSIGN_OR_RETURN(const auto model, Loaded());
  const Rates rates = parts_.rates.Over(window_nanos);
  out.set_window_seconds(rates.window_seconds);
  out.set_hit_ratio(rates.hit_ratio);
  out.set_read_bytes_per_second(rates.bytes_per_second);
  out.set_tokens_per_second(rates.tokens_per_second);
  out.set_mean_tpot_seconds(rates.mean_tpot_seconds);

  const EngineStats engine = model->engine->Stats();
  out.set_running(engine.running);
  out.set_waiting(engine.waiting);
  out.set_sessions(engine.sessions);
  out.set_requests(parts_.requests.totals().requests);
  out.set_prompt_tokens(engine.prompt_tokens);
  out.set_generated_tokens(engine.generated_tokens);

  const ExpertStats experts = model->expert_stats();
  const LookupTotals totals = TotalsOf(experts);
  out.set_expert_hits(totals.hits);
  out.set_expert_misses(totals.misses);
  out.set_bytes_read(totals.bytes_read);
  for (double seconds : experts.stall_seconds) out.set_stall_seconds(out.stall_seconds() + seconds);
  FillPhase(experts, Phase::kPrefill, *out.mutable_prefill());
  FillPhase(experts, Phase::kDecode, *out.mutable_decode());
  out.set_read_busy_seconds(static_cast<double>(experts.read_busy_nanos) * 1e-9);
  out.set_wasted_prefetch_bytes(experts.wasted_prefetch_bytes);
  out.set_prefetch_saved_seconds(experts.prefetch_saved_seconds);
  out.set_cache_bytes(experts.cache_bytes);
  out.set_cache_capacity_bytes(experts.cache_capacity_bytes);
  if (experts.device.capacity_bytes > 0) FillDeviceTier(experts.device, *out.mutable_device());
  FillMemory(model->MemoryNow(experts), *out.mutable_memory());
  out.set_memory_budget_bytes(model->cache->plan().budget);
  out.set_resident_set_bytes(ReadProcessUsage().resident_bytes);
  FillTenants(*model->engine, out);
  for (const TracePart& part : model->step_parts()) {
    auto* step = out.add_step_parts();
    step->set_part(std::string(part.name));
    const auto fill = [&part](StepKind kind, moe::v1::StepTime& time) {
      time.set_count(part.count[static_cast<size_t>(kind)]);
      time.set_seconds(static_cast<double>(part.nanos[static_cast<size_t>(kind)]) * 1e-9);
    };
    fill(StepKind::kPrefill, *step->mutable_prefill());
    fill(StepKind::kDecode, *step->mutable_decode());
  }
  return absl::OkStatus();
}

// All that have a token, whether or not they have been here, and those that have been here and have none any more.
void ControlService::FillTenants(const Engine& engine, moe::v1::Stats& out) const {
  std::map<std::string, TenantInfo> tenants;
  for (TenantInfo& tenant : engine.ListTenants()) tenants[tenant.name] = std::move(tenant);
  if (parts_.tokens != nullptr) {
    for (auto& [name, limits] : parts_.tokens->List()) tenants[name].limits = limits;
  }
  for (const auto& [name, tenant] : tenants) {
    moe::v1::TenantStats& told = *out.add_tenants();
    told.set_name(name);
    told.set_running(tenant.running);
    told.set_waiting(tenant.waiting);
    told.set_refused(tenant.refused);
    told.set_prompt_tokens(tenant.prompt_tokens);
    told.set_generated_tokens(tenant.generated_tokens);
    const TenantLimits& limits = tenant.limits;
    told.set_weight(limits.weight);
    if (limits.max_running) told.set_max_running(*limits.max_running);
    if (limits.max_waiting) told.set_max_waiting(*limits.max_waiting);
    if (limits.tokens_per_minute) told.set_tokens_per_minute(*limits.tokens_per_minute);
    if (limits.kv_percent) told.set_kv_percent(*limits.kv_percent);
  }
}

absl::Status ControlService::FillCacheState(const moe::v1::GetCacheStateRequest& request, moe::v1::CacheState& out) const {
  if (request.hottest() < 0 || request.hottest() > kMaxHottest) {
    return FieldError("hottest", request.hottest(), " is not in [0, ", kMaxHottest, "]");
  }
  MOED_ASSIGN_OR_RETURN(const auto model, Loaded());
  const ExpertStats experts = model->expert_stats();
  for (const LayerStats& layer : experts.layers) {
    auto* state = out.add_layers();
    state->set_layer(layer.layer.value());
    for (uint32_t resident : layer.resident) state->add_resident(static_cast<int32_t>(resident));
    for (const auto& by_result : layer.lookups) {
      state->set_hits(state->hits() + by_result[static_cast<size_t>(LookupResult::kHit)]);
      state->set_misses(state->misses() + by_result[static_cast<size_t>(LookupResult::kMiss)] +
                        by_result[static_cast<size_t>(LookupResult::kInflight)]);
    }
    state->set_stall_seconds(layer.stall_seconds);
  }
  for (const ExpertKey& key : model->cache->Pinned()) {
    auto* layer = std::find_if(out.mutable_layers()->pointer_begin(), out.mutable_layers()->pointer_end(),
                               [&](const moe::v1::LayerCacheState* state) { return state->layer() == key.layer.value(); })[0];
    layer->add_pinned(key.expert);
  }
  out.set_pinned(experts.anchors.records);
  out.set_pinned_bytes(experts.anchors.bytes);
  out.set_most_pinned_bytes(experts.anchors.most_bytes);
  out.set_asked_waiting(experts.asked.waiting);
  out.set_asked_done(experts.asked.done);
  out.set_asked_refused(experts.asked.refused);
  out.set_asked_failed(experts.asked.failed);
  for (const ExpertHeat& heat : model->hottest_experts(request.hottest())) {
    auto* hottest = out.add_hottest();
    hottest->set_layer(heat.key.layer.value());
    hottest->set_expert(heat.key.expert);
    hottest->set_format(model->info.expert_formats(heat.key.precision));
    hottest->set_uses(heat.uses);
    hottest->set_resident(heat.resident);
  }
  out.set_bytes(experts.cache_bytes);
  out.set_capacity_bytes(experts.cache_capacity_bytes);
  return absl::OkStatus();
}

absl::Status ControlService::FillExpertMap(const moe::v1::GetExpertMapRequest& request, moe::v1::ExpertMap& out) const {
  MOED_ASSIGN_OR_RETURN(const auto model, Loaded());
  const int64_t experts = int64_t{model->info.moe_layers()} * model->info.experts();
  if (experts > kMaxMappedExperts) {
    return FailedPrecondition("the model has ", experts, " experts: maps are told of at most ", kMaxMappedExperts);
  }
  const ExpertMap map = model->expert_map(request.since());
  out.set_now(map.now);
  out.set_experts(model->info.experts());
  *out.mutable_formats() = model->info.expert_formats();
  for (const LayerCells& cells : map.layers) FillLayer(cells, *out.add_layers());
  return absl::OkStatus();
}

absl::Status ControlService::FillSessions(const moe::v1::ListSessionsRequest& request, moe::v1::ListSessionsResponse& out) const {
  if (request.most() < 0 || request.most() > kMaxSessions) {
    return FieldError("most", request.most(), " is not in [0, ", kMaxSessions, "]");
  }
  MOED_ASSIGN_OR_RETURN(const auto model, Loaded());
  const int most = request.most() > 0 ? request.most() : kDefaultSessions;
  const int64_t now = parts_.clock.NowNanos();
  for (const SessionInfo& info : model->engine->ListSessions(static_cast<size_t>(most))) {
    auto* session = out.add_sessions();
    session->set_session_id(info.name);
    session->set_busy(info.busy);
    if (info.busy) continue;
    session->set_tokens(info.tokens);
    session->set_cached_tokens(info.computed);
    session->set_tokens_on_disk(info.on_disk);
    session->set_idle_seconds(SecondsBetween(info.used_nanos, now));
  }
  out.set_total(model->engine->Stats().sessions);
  return absl::OkStatus();
}

}  // namespace moed
