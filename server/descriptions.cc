#include "server/descriptions.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "core/base/version.h"
#include "core/quant/format.h"

namespace moed {

moe::v1::ModelInfo DescribeModel(const StoreReader& store, const ModelSpec& spec, int max_context) {
  const StoreDescription& description = store.description();
  moe::v1::ModelInfo info;
  info.set_store_path(store.path());
  info.set_family(spec.family);
  info.set_model_hash(absl::StrFormat("%016x", store.model_hash()));
  info.set_layers(spec.layers);
  info.set_hidden(spec.hidden);
  info.set_heads(spec.heads);
  info.set_kv_heads(spec.kv_heads);
  info.set_head_dim(spec.head_dim);
  info.set_vocabulary(spec.vocabulary);
  info.set_moe_layers(static_cast<int>(description.moe_layers.size()));
  info.set_experts(spec.experts);
  info.set_top_k(spec.top_k);
  info.set_shared_ffn(spec.shared_ffn);
  info.set_max_context(max_context);
  info.set_model_context(spec.max_positions);
  for (const ExpertPrecision& precision : description.precisions) info.add_expert_formats(PrecisionName(precision));
  if (auto embed = store.FindTensor("embed"); embed.ok()) info.set_trunk_format(std::string(FormatOf((*embed)->format).name));
  info.set_expert_bytes(store.largest_expert_bytes(kReferencePrecision));
  info.set_all_expert_bytes(store.all_expert_bytes());
  info.set_trunk_bytes(description.trunk_bytes);
  for (TokenId token : spec.eos) info.add_eos_token_ids(token.value());
  return info;
}

std::string_view NoPromptLookup(const Config& config, const ModelSpec& spec) {
  if (!config.serving.prompt_lookup) return "--prompt-lookup";
  if (!config.record_routing.empty()) return "--record-routing writes tokens that were chosen";
  if (std::ranges::count(spec.recurrent, true) > 0) return "the model keeps states, which cannot be taken back";
  return "";
}

moe::v1::ServerInfo DescribeServer(const ServingOptions& options, const ServingPlan& plan, const PresetSetup& preset,
                                   std::string_view no_prompt_lookup) {
  moe::v1::ServerInfo info;
  info.set_version(Version());
  info.set_build(BuildDetails());
  info.set_preset(std::string(preset.row->name));
  info.set_policy(std::string(preset.policy->name));
  info.set_predictor(std::string(preset.predictor->name));
  info.set_fidelity(std::string(preset.fidelity.class_name()));
  info.set_fidelity_rule(std::string(preset.rule->name));
  info.set_router_mask(std::string(preset.mask->name));
  info.set_fills_cache(preset.fill);
  info.set_has_cache(preset.row->cache != CacheKind::kOneToken);
  info.set_kv_format(kKvFormatNames[static_cast<int>(options.kv_format)]);
  info.set_prefix_cache(options.prefix_cache ? "on" : "off: --prefix-cache");
  info.set_prompt_lookup(no_prompt_lookup.empty() ? "on" : absl::StrFormat("off: %s", no_prompt_lookup));
  info.set_fast_matmul(options.fast_matmul);
  info.set_threads(options.threads);
  info.set_max_sessions(plan.running);
  info.set_queue_capacity(plan.engine.queue_capacity);
  return info;
}

}  // namespace moed
