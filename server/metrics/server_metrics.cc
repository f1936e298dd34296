#include "server/metrics/server_metrics.h"

#include "server/metrics/expert_metrics.h"
#include "server/metrics/metric_families.h"

namespace moed {
namespace {

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
  AddGauge(families, "moe_prefix_cache_pages", "Pages not in use whose contents are kept for prompts that begin with them.",
           stats.kv_pages_remembered);
  AddGauge(families, "moe_prefix_cache_checkpoints", "States and windows that are kept for prompts that go on after them.",
           stats.checkpoints);
  AddCounter(families, "moe_prefix_cache_queries_total", "Tokens of prompts that were looked for in the prefix cache.",
             static_cast<double>(stats.prefix_queries));
  AddCounter(families, "moe_prefix_cache_hits_total", "Of those, tokens that were there.",
             static_cast<double>(stats.prefix_hits));
  AddSpill(stats.spill, families);
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

}  // namespace

uint64_t ServerMetrics::MemoryBudget() const {
  const LoadedModel* model = state_.loaded();
  return model == nullptr ? info_.memory_budget_bytes() : model->cache->plan().budget;
}

std::vector<prometheus::MetricFamily> ServerMetrics::Collect() const {
  MetricFamilies families;
  AddSample(AddFamily(families, "moe_build_info", "The build.", MetricType::Gauge), 1,
            {{"version", info_.version()}, {"build", info_.build()}});
  AddGauge(families, "moe_ready", "1: takes requests.", state_.ready());
  AddGauge(families, "moe_draining", "1: not ready any more; finishes what runs, and soon takes nothing new.", state_.draining());
  AddGauge(families, "moe_memory_budget_bytes", "The memory budget.", static_cast<double>(MemoryBudget()));

  const Rates rates = rates_.Over(kDefaultWindowNanos);
  AddGauge(families, "moe_expert_cache_hit_ratio", "Hits of all expert lookups of the last 10 seconds.", rates.hit_ratio);
  AddGauge(families, "moe_io_read_bytes_per_second", "Bytes of experts read, over the last 10 seconds.", rates.bytes_per_second);
  AddGauge(families, "moe_tokens_per_second", "Generated tokens, over the last 10 seconds.", rates.tokens_per_second);

  if (const LoadedModel* model = state_.loaded()) {
    const ExpertStats experts = model->expert_stats();
    AddEngine(*model->engine, families);
    AddModel(*model, experts, families);
    AddExpertFamilies(experts, model->expert_formats, families);
  }
  return families;
}

}  // namespace moed
