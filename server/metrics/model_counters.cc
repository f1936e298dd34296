#include "server/metrics/model_counters.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "server/metrics/expert_metrics.h"
#include "server/metrics/lookup_totals.h"

namespace moed {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

void AddSpill(const KvSpillStats& spill, MetricFamilies& families) {
  AddGauge(families, "moe_kv_spill_budget_bytes", "Disk that keys and values of idle sessions may take; 0: none.",
           static_cast<double>(spill.budget));
  AddGauge(families, "moe_kv_spill_bytes", "Disk that they take.", static_cast<double>(spill.on_disk_bytes));
  AddGauge(families, "moe_kv_spill_ended", "1: a write failed, and nothing more is written.", spill.ended);
  AddCounter(families, "moe_kv_spill_written_bytes_total", "Keys and values written to disk.",
             static_cast<double>(spill.written_bytes));
  AddCounter(families, "moe_kv_spill_read_bytes_total", "Keys and values read back.", static_cast<double>(spill.read_bytes));
  AddCounter(families, "moe_kv_spill_write_seconds_total", "Time that writing them took.", spill.write_seconds);
  AddCounter(families, "moe_kv_spill_read_seconds_total", "Time that reading them took.", spill.read_seconds);
  AddCounter(families, "moe_kv_spill_restored_tokens_total", "Tokens whose keys and values came back from disk.",
             static_cast<double>(spill.restored_tokens));
  AddCounter(families, "moe_kv_spill_lost_tokens_total",
             "Tokens of idle sessions whose keys and values are neither in memory nor on disk any more.",
             static_cast<double>(spill.lost_tokens));
  AddCounter(families, "moe_kv_spill_damaged_total", "Blocks that could not be read, or were not what was written.",
             static_cast<double>(spill.damaged));
}

void AddEngine(const Engine& engine, MetricFamilies& families) {
  const EngineStats stats = engine.Stats();
  AddGauge(families, "moe_requests_running", "Requests being computed.", stats.running);
  AddGauge(families, "moe_requests_waiting", "Requests in the queue.", stats.waiting);
  AddGauge(families, "moe_queue_capacity", "Requests that may wait.", engine.limits().queue_capacity);
  AddGauge(families, "moe_sessions", "Kept conversations, those being answered included.", stats.sessions);
  AddGauge(families, "moe_kv_pages", "Pages of keys and values that there are.", stats.kv_pages);
  AddGauge(families, "moe_kv_pages_used", "Pages of keys and values in use.", stats.kv_pages_used);
  AddGauge(families, "moe_kv_used_ratio", "Of the pages of keys and values the share in use, from 0 to 1.",
           static_cast<double>(stats.kv_pages_used) / std::max(stats.kv_pages, 1));
  AddGauge(families, "moe_prefix_cache_pages", "Pages not in use whose contents are kept for prompts that begin with them.",
           stats.kv_pages_remembered);
  AddGauge(families, "moe_prefix_cache_checkpoints", "States and windows that are kept for prompts that go on after them.",
           stats.checkpoints);
  AddCounter(families, "moe_prefix_cache_queries_total", "Tokens of prompts that were looked for in the prefix cache.",
             static_cast<double>(stats.prefix_queries));
  AddCounter(families, "moe_prefix_cache_hits_total", "Of those, tokens that were there.",
             static_cast<double>(stats.prefix_hits));
  AddSpill(stats.spill, families);
  AddCounter(families, "moe_embedding_rows_total", "Rows that tokens wanted of an embedding that stays in the store.",
             static_cast<double>(stats.embedding.rows));
  AddCounter(families, "moe_embedding_reads_total", "Reads of such rows, eight at a time, that were not in memory.",
             static_cast<double>(stats.embedding.reads));
  AddCounter(families, "moe_embedding_read_bytes_total", "Bytes of rows so read.",
             static_cast<double>(stats.embedding.read_bytes));
  MetricFamily& failures =
      AddFamily(families, "moe_embedding_read_failures_total",
                "Reads of such rows that failed, or what was read is not what was read at first.", MetricType::Counter);
  AddSample(failures, static_cast<double>(stats.embedding.read_errors), {{"cause", "read"}});
  AddSample(failures, static_cast<double>(stats.embedding.damaged), {{"cause", "damage"}});
  AddCounter(families, "moe_draft_tokens_total", "Tokens that were computed ahead of their choice since the text repeats itself.",
             static_cast<double>(stats.drafted_tokens));
  AddCounter(families, "moe_draft_tokens_accepted_total", "Of those, tokens that were chosen.",
             static_cast<double>(stats.accepted_draft_tokens));
  AddCounter(families, "moe_engine_steps_total", "Turns of the step loop that computed something.",
             static_cast<double>(stats.steps));
  AddCounter(families, "moe_preemptions_total", "Requests whose keys and values were dropped to be computed again.",
             static_cast<double>(stats.preemptions));
  AddCounter(families, "moe_prompt_tokens_total", "Tokens of requests' whole prompts, what sessions held included.",
             static_cast<double>(stats.prompt_tokens));
  AddCounter(families, "moe_prompt_tokens_cached_total", "Prompt tokens whose keys and values were still there.",
             static_cast<double>(stats.cached_tokens));
  AddCounter(families, "moe_recomputed_tokens_total", "Tokens computed once more since their keys and values had been dropped.",
             static_cast<double>(stats.recomputed_tokens));
  AddCounter(families, "moe_generated_tokens_total", "Generated tokens.", static_cast<double>(stats.generated_tokens));
  AddCounter(families, "moe_fast_matmul_tokens_total", "Tokens whose products with dense matrices were those of halves.",
             static_cast<double>(stats.fast_matmul_tokens));
}

// Their names are those of tokens that were used.
void AddTenants(const Engine& engine, MetricFamilies& families) {
  const std::vector<TenantInfo> tenants = engine.ListTenants();
  const auto add = [&](const char* name, const char* help, MetricType type, auto value) {
    MetricFamily& family = AddFamily(families, name, help, type);
    for (const TenantInfo& tenant : tenants) AddSample(family, static_cast<double>(value(tenant)), {{"tenant", tenant.name}});
  };
  add("moe_tenant_requests_running", "Requests being computed, by name of token.", MetricType::Gauge,
      [](const TenantInfo& tenant) { return tenant.running; });
  add("moe_tenant_requests_waiting", "Requests in the queue, by name of token.", MetricType::Gauge,
      [](const TenantInfo& tenant) { return tenant.waiting; });
  add("moe_tenant_requests_refused_total", "Requests that were refused by limits of the name, or since the queue was full.",
      MetricType::Counter, [](const TenantInfo& tenant) { return tenant.refused; });
  add("moe_tenant_prompt_tokens_total", "Tokens of prompts that were sent, of requests that ran and have ended.",
      MetricType::Counter, [](const TenantInfo& tenant) { return tenant.prompt_tokens; });
  add("moe_tenant_generated_tokens_total", "Generated tokens, by name of token.", MetricType::Counter,
      [](const TenantInfo& tenant) { return tenant.generated_tokens; });
}

void AddModel(const LoadedModel& model, const ExpertStats& experts, MetricFamilies& families) {
  const moe::v1::ModelInfo& info = model.info;
  AddSample(AddFamily(families, "moe_model_info", "The model served.", MetricType::Gauge), 1,
            {{"family", info.family()},
             {"hash", info.model_hash()},
             {"expert_format", info.expert_formats().empty() ? "" : info.expert_formats(0)},
             {"trunk_format", info.trunk_format()}});
  MetricFamily& memory = AddFamily(families, "moe_memory_bytes", "What the memory budget is spent on.", MetricType::Gauge);
  for (const MemoryPart& part : model.MemoryNow(experts))
    AddSample(memory, static_cast<double>(part.bytes), {{"part", part.name}});
}

MetricFamilies FamiliesOf(const LoadedModel& model) {
  MetricFamilies families;
  const ExpertStats experts = model.expert_stats();
  AddEngine(*model.engine, families);
  AddTenants(*model.engine, families);
  AddModel(model, experts, families);
  AddExpertFamilies(experts, model.info.expert_formats(), families);
  return families;
}

bool Grows(const MetricFamily& family) { return family.type == MetricType::Counter || family.type == MetricType::Histogram; }

// Both have the same buckets: those of a family are constants.
void AddMetric(const ClientMetric& more, ClientMetric& metric) {
  metric.counter.value += more.counter.value;
  metric.histogram.sample_count += more.histogram.sample_count;
  metric.histogram.sample_sum += more.histogram.sample_sum;
  MOED_CHECK(metric.histogram.bucket.size() == more.histogram.bucket.size());
  for (size_t i = 0; i < more.histogram.bucket.size(); ++i) {
    metric.histogram.bucket[i].cumulative_count += more.histogram.bucket[i].cumulative_count;
  }
}

void AddFamilyTo(const MetricFamily& more, MetricFamily& family) {
  std::map<MetricLabels, size_t> places;
  for (size_t i = 0; i < family.metric.size(); ++i) places.emplace(family.metric[i].label, i);
  for (const ClientMetric& metric : more.metric) {
    const auto place = places.find(metric.label);
    if (place == places.end()) {
      family.metric.push_back(metric);
    } else {
      AddMetric(metric, family.metric[place->second]);
    }
  }
}

// Samples of a family that both have are added up by labels.
void AddFamilies(const MetricFamilies& more, MetricFamilies& families) {
  for (const MetricFamily& family : more) {
    const auto found = std::ranges::find(families, family.name, &MetricFamily::name);
    if (found == families.end()) {
      families.push_back(family);
    } else {
      AddFamilyTo(family, *found);
    }
  }
}

void AddCounts(const LoadedModel& model, CounterSnapshot& snapshot) {
  const LookupTotals lookups = TotalsOf(model.expert_stats());
  snapshot.hits += lookups.hits;
  snapshot.lookups += lookups.hits + lookups.misses;
  snapshot.bytes_read += lookups.bytes_read;
  snapshot.generated_tokens += model.engine->Stats().generated_tokens;
}

}  // namespace

void ModelCounters::Observe(const LoadedModel* model) {
  absl::MutexLock lock(&mutex_);
  MOED_CHECK(model_ == nullptr);
  model_ = model;
}

void ModelCounters::Retire() {
  absl::MutexLock lock(&mutex_);
  if (model_ == nullptr) return;
  AddCounts(*model_, retired_);
  MetricFamilies last = FamiliesOf(*model_);
  std::erase_if(last, [](const MetricFamily& family) { return !Grows(family); });
  AddFamilies(last, retired_families_);
  model_ = nullptr;
}

void ModelCounters::AddTo(CounterSnapshot& snapshot) const {
  absl::MutexLock lock(&mutex_);
  if (model_ != nullptr) AddCounts(*model_, snapshot);
  snapshot.hits += retired_.hits;
  snapshot.lookups += retired_.lookups;
  snapshot.bytes_read += retired_.bytes_read;
  snapshot.generated_tokens += retired_.generated_tokens;
}

void ModelCounters::Collect(MetricFamilies& families) const {
  absl::MutexLock lock(&mutex_);
  MetricFamilies of_models;
  if (model_ != nullptr) of_models = FamiliesOf(*model_);
  AddFamilies(retired_families_, of_models);
  std::ranges::move(of_models, std::back_inserter(families));
}

}  // namespace moed
