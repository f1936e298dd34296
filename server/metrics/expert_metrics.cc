#include "server/metrics/expert_metrics.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "core/expert/routing.h"

namespace moed {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::array<const char*, kPhases> kPhaseNames = {"prefill", "decode"};
constexpr std::array<const char*, kLookupResults> kResultNames = {"hit", "miss", "inflight"};
constexpr std::array<const char*, kLoadReasons> kLoadReasonNames = {"demand", "prefetch", "fill"};
constexpr std::array<const char*, kPrefetchOutcomes> kOutcomeNames = {"used", "late", "wasted", "cancelled"};
constexpr std::array<const char*, kEvictionReasons> kEvictionNames = {"demand", "prefetch", "resize"};
constexpr const char* kSource = "disk";

std::string LayerLabel(const LayerStats& layer) { return std::to_string(layer.layer.value()); }

void AddLookups(const ExpertStats& stats, MetricFamilies& families) {
  MetricFamily& lookups =
      AddFamily(families, "moe_expert_lookups_total",
                "Lookups of experts: one for each distinct expert of one layer in one step.", MetricType::Counter);
  for (const LayerStats& layer : stats.layers) {
    for (int phase = 0; phase < kPhases; ++phase) {
      for (int result = 0; result < kLookupResults; ++result) {
        AddSample(lookups, static_cast<double>(layer.lookups[phase][result]),
                  {{"layer", LayerLabel(layer)}, {"phase", kPhaseNames[phase]}, {"result", kResultNames[result]}});
      }
    }
  }
}

void AddLoads(const ExpertStats& stats, const FormatNames& formats, MetricFamilies& families) {
  MetricFamily& bytes = AddFamily(families, "moe_expert_load_bytes_total", "Bytes of experts read.", MetricType::Counter);
  for (size_t precision = 0; precision < stats.load_bytes.size(); ++precision) {
    for (int reason = 0; reason < kLoadReasons; ++reason) {
      AddSample(bytes, static_cast<double>(stats.load_bytes[precision][reason]),
                {{"source", kSource}, {"reason", kLoadReasonNames[reason]}, {"precision", formats[precision]}});
    }
  }
  MetricFamily& seconds =
      AddFamily(families, "moe_expert_load_seconds", "Loads of experts, from the queue to resident.", MetricType::Histogram);
  for (int reason = 0; reason < kLoadReasons; ++reason) {
    const LoadHistogram& load = stats.loads[reason];
    prometheus::ClientMetric metric;
    metric.label = {{"source", kSource}, {"reason", kLoadReasonNames[reason]}};
    metric.histogram.sample_count = load.count;
    metric.histogram.sample_sum = load.sum_seconds;
    uint64_t cumulative = 0;
    for (size_t i = 0; i < load.buckets.size(); ++i) {
      cumulative += load.buckets[i];
      metric.histogram.bucket.push_back(
          {cumulative, i < kLoadSecondsBounds.size() ? kLoadSecondsBounds[i] : std::numeric_limits<double>::infinity()});
    }
    seconds.metric.push_back(std::move(metric));
  }
  MetricFamily& prefetches =
      AddFamily(families, "moe_expert_prefetch_total", "Prefetched experts, by what became of them.", MetricType::Counter);
  for (int i = 0; i < kPrefetchOutcomes; ++i)
    AddSample(prefetches, static_cast<double>(stats.prefetches[i]), {{"outcome", kOutcomeNames[i]}});
  AddCounter(families, "moe_expert_prefetch_wasted_bytes_total",
             "Bytes of prefetched experts that left before anyone wanted them, or were given up.",
             static_cast<double>(stats.wasted_prefetch_bytes));
  AddCounter(families, "moe_expert_prefetch_saved_seconds_total",
             "Time of reading that prefetches had done when their experts were wanted.", stats.prefetch_saved_seconds);
  AddCounter(families, "moe_expert_bypass_loads_total",
             "Loads of experts that did not stay: the cache kept others, or had no room.",
             static_cast<double>(stats.bypass_loads));
  MetricFamily& failures =
      AddFamily(families, "moe_expert_load_failures_total",
                "Loads of experts that failed: reads, or what was read is not what was packed.", MetricType::Counter);
  AddSample(failures, static_cast<double>(stats.failed_loads - stats.damaged_loads), {{"cause", "read"}});
  AddSample(failures, static_cast<double>(stats.damaged_loads), {{"cause", "damage"}});
}

// recall = right / routed, precision = right / guessed
void AddPredictions(const ExpertStats& stats, MetricFamilies& families) {
  MetricFamily& experts = AddFamily(families, "moe_expert_predictions_total",
                                    "Distinct experts of one layer of one step: guessed before its router ran, routed, and both.",
                                    MetricType::Counter);
  for (int phase = 0; phase < kPhases; ++phase) {
    const PredictionCounts& counts = stats.predictions[phase];
    AddSample(experts, static_cast<double>(counts.guessed), {{"phase", kPhaseNames[phase]}, {"experts", "guessed"}});
    AddSample(experts, static_cast<double>(counts.routed), {{"phase", kPhaseNames[phase]}, {"experts", "routed"}});
    AddSample(experts, static_cast<double>(counts.right), {{"phase", kPhaseNames[phase]}, {"experts", "right"}});
  }
}

void AddStalls(const ExpertStats& stats, MetricFamilies& families) {
  MetricFamily& stall =
      AddFamily(families, "moe_expert_stall_seconds_total", "Time that compute waited for experts.", MetricType::Counter);
  for (int phase = 0; phase < kPhases; ++phase) AddSample(stall, stats.stall_seconds[phase], {{"phase", kPhaseNames[phase]}});
  // In the order of LayerStats' fields; each labelled by layer.
  MetricFamily layer_stall{
      "moe_expert_layer_stall_seconds_total", "Time that compute waited for experts.", MetricType::Counter, {}};
  MetricFamily lowered{"moe_expert_lowered_total", "Experts used below the reference precision.", MetricType::Counter, {}};
  MetricFamily skipped{"moe_expert_skipped_total", "Experts left out.", MetricType::Counter, {}};
  MetricFamily masked{"moe_expert_masked_total", "Choices of tokens that the router was not allowed.", MetricType::Counter, {}};
  MetricFamily lost{
      "moe_gate_mass_lost_total", "Shares of tokens' gate mass that were lowered, skipped or masked.", MetricType::Counter, {}};
  MetricFamily tokens{"moe_routed_tokens_total", "Tokens that were routed.", MetricType::Counter, {}};
  for (const LayerStats& layer : stats.layers) {
    AddSample(layer_stall, layer.stall_seconds, {{"layer", LayerLabel(layer)}});
    AddSample(lowered, static_cast<double>(layer.lowered), {{"layer", LayerLabel(layer)}});
    AddSample(skipped, static_cast<double>(layer.skipped), {{"layer", LayerLabel(layer)}});
    AddSample(masked, static_cast<double>(layer.masked), {{"layer", LayerLabel(layer)}});
    AddSample(lost, layer.gate_mass_lost, {{"layer", LayerLabel(layer)}});
    AddSample(tokens, static_cast<double>(layer.tokens), {{"layer", LayerLabel(layer)}});
  }
  for (MetricFamily* family : {&layer_stall, &lowered, &skipped, &masked, &lost, &tokens}) families.push_back(std::move(*family));
}

void AddDeviceTier(const DeviceTierStats& device, MetricFamilies& families) {
  MetricFamily& uses =
      AddFamily(families, "moe_expert_tier_uses_total",
                "Experts handed out to be computed with, by the memory they lay in and what computes.", MetricType::Counter);
  AddSample(uses, static_cast<double>(device.UsesOf(TierUse::kOnDevice)), {{"tier", "device"}, {"by", "device"}});
  AddSample(uses, static_cast<double>(device.UsesOf(TierUse::kOverTheBus)), {{"tier", "host"}, {"by", "device"}});
  AddSample(uses, static_cast<double>(device.UsesOf(TierUse::kOnProcessor)), {{"tier", "host"}, {"by", "processor"}});
  MetricFamily& copied = AddFamily(families, "moe_expert_tier_copied_bytes_total",
                                   "Experts copied between the memories of host and device.", MetricType::Counter);
  AddSample(copied, static_cast<double>(device.risen_bytes), {{"to", "device"}});
  AddSample(copied, static_cast<double>(device.sunk_bytes), {{"to", "host"}});
}

void AddDeviceSteps(const DeviceTierStats& device, MetricFamilies& families) {
  constexpr std::array<std::string_view, kStepWays> kWays = {"whole",   "many_rows", "not_exact",    "masked",
                                                             "watched", "its_model", "not_all_there"};
  MetricFamily& steps =
      AddFamily(families, "moe_device_steps_total",
                "Steps on a device: whole, without a wait for the host, or layer by layer, and why.", MetricType::Counter);
  for (size_t way = 0; way < kWays.size(); ++way) {
    AddSample(steps, static_cast<double>(device.steps[way]), {{"way", std::string(kWays[way])}});
  }
}

void AddCache(const ExpertStats& stats, const FormatNames& formats, MetricFamilies& families) {
  MetricFamily& evictions =
      AddFamily(families, "moe_expert_evictions_total", "Experts that left the cache.", MetricType::Counter);
  for (size_t precision = 0; precision < stats.evictions.size(); ++precision) {
    for (int reason = 0; reason < kEvictionReasons; ++reason) {
      AddSample(evictions, static_cast<double>(stats.evictions[precision][reason]),
                {{"precision", formats[precision]}, {"reason", kEvictionNames[reason]}});
    }
  }
  MetricFamily held{"moe_expert_cache_bytes", "Held by the expert cache.", MetricType::Gauge, {}};
  MetricFamily capacity{"moe_expert_cache_capacity_bytes", "The expert cache may hold.", MetricType::Gauge, {}};
  AddSample(held, static_cast<double>(stats.cache_bytes), {{"tier", "host"}});
  AddSample(capacity, static_cast<double>(stats.cache_capacity_bytes), {{"tier", "host"}});
  if (stats.device.capacity_bytes > 0) {
    AddSample(held, static_cast<double>(stats.device.bytes), {{"tier", "device"}});
    AddSample(capacity, static_cast<double>(stats.device.capacity_bytes), {{"tier", "device"}});
    AddDeviceTier(stats.device, families);
  }
  if (std::ranges::any_of(stats.device.steps, [](uint64_t steps) { return steps > 0; })) AddDeviceSteps(stats.device, families);
  families.push_back(std::move(held));
  families.push_back(std::move(capacity));
  MetricFamily& resident = AddFamily(families, "moe_expert_resident", "Experts in memory.", MetricType::Gauge);
  for (const LayerStats& layer : stats.layers) {
    for (size_t precision = 0; precision < layer.resident.size(); ++precision) {
      AddSample(resident, layer.resident[precision], {{"layer", LayerLabel(layer)}, {"precision", formats[precision]}});
    }
  }
}

}  // namespace

void AddExpertFamilies(const ExpertStats& stats, const FormatNames& formats, MetricFamilies& families) {
  AddLookups(stats, families);
  AddLoads(stats, formats, families);
  AddPredictions(stats, families);
  AddStalls(stats, families);
  AddCache(stats, formats, families);
}

}  // namespace moed
