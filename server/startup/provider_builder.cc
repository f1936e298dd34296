#include "server/startup/provider_builder.h"

#include <unistd.h>

#include <utility>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/expert/cache/fill_order.h"
#include "core/expert/learning/learned_state.h"
#include "core/expert/memory_plan.h"
#include "spdlog/spdlog.h"

namespace moed {

ProviderBuilder::ProviderBuilder(const Config& config, const StoreReader& store, const ModelSpec& spec)
    : config_(config), store_(store), spec_(spec) {
  for (const ExpertLayout& layout : store.description().precisions) record_bytes_.push_back(layout.record_bytes);
}

absl::StatusOr<std::unique_ptr<ProviderBuilder>> ProviderBuilder::Choose(const Config& config, const StoreReader& store,
                                                                         const ModelSpec& spec) {
  // Not make_unique: the constructor is private.
  std::unique_ptr<ProviderBuilder> path(new ProviderBuilder(config, store, spec));
  MOED_ASSIGN_OR_RETURN(path->preset_, ChoosePreset(config.preset, store));
  const PresetSetup& preset = path->preset_;
  spdlog::info(
      "preset {} ({}): policy {}, predictor {}, fidelity rule {}, router mask {}, cache filled {}; requests that do not say are "
      "served {}",
      preset.row->name, preset.row->description, preset.policy, preset.predictor, preset.rule, preset.mask,
      preset.fill ? "while the disk is idle" : "on demand", FidelityClassName(preset.may_lose));
  return path;
}

PresetContext ProviderBuilder::Context(size_t table_bytes, uint64_t capacity_bytes) const {
  const StoreDescription& description = store_.description();
  const ExpertModelShape policy{.moe_layers = description.moe_layers,
                                .experts_per_layer = description.experts_per_layer,
                                .top_k = spec_.top_k,
                                .precisions = static_cast<int>(description.precisions.size()),
                                .record_bytes = record_bytes_,
                                .capacity_bytes = capacity_bytes,
                                .table_bytes = table_bytes};
  const GateFn gate = [this](LayerId layer, std::span<const float> hidden, std::span<float> probabilities) {
    model_->GateProbabilities(layer, hidden, probabilities);
  };
  return {{.model = policy, .hidden = spec_.hidden, .gate = gate}};
}

absl::StatusOr<PresetNeeds> ProviderBuilder::Needs() const {
  PresetNeeds needs;
  MOED_ASSIGN_OR_RETURN(const PresetParts least, MakePresetParts(preset_, Context(0, 0)));
  MOED_ASSIGN_OR_RETURN(const PresetParts more, MakePresetParts(preset_, Context(size_t{1} << 20, 0)));
  const auto count = [&needs](const auto& without, const auto& with) {
    needs.fixed_bytes += without->memory_bytes();
    needs.token_tables += with->memory_bytes() > without->memory_bytes() ? 1 : 0;
  };
  const auto count_sequence = [&needs](const auto& part) {
    const uint64_t without = part->memory_bytes();
    part->OnSequenceStart(SequenceId(1));
    needs.sequence_bytes += part->memory_bytes() - without;
  };
  count(least.policy, more.policy);
  count(least.predictor, more.predictor);
  count(least.rule, more.rule);
  if (least.mask != nullptr) count(least.mask, more.mask);
  count_sequence(least.policy);
  count_sequence(least.predictor);
  needs.cache = BoundsOfCache(preset_, store_, spec_.top_k);
  return needs;
}

absl::Status ProviderBuilder::Open(const Dependencies& around) {
  model_ = &around.model;
  const PresetContext context = Context(TokenTableBytes(around.memory.budget), around.memory.cache);
  MOED_ASSIGN_OR_RETURN(PresetParts preset, MakePresetParts(preset_, context));
  MOED_RETURN_IF_ERROR(LoadLearned(preset));
  MOED_RETURN_IF_ERROR(StartRecording());
  ProviderParts parts;
  parts.fill = FillOrder(preset_, preset, context.predictor.model);
  parts.store = &store_;
  parts.reads = &around.reads;
  parts.policy = std::move(preset.policy);
  parts.predictor = std::move(preset.predictor);
  parts.mask = std::move(preset.mask);
  parts.top_k = spec_.top_k;
  parts.fidelity = std::move(preset.rule);
  parts.clock = &around.clock;
  parts.allocator = &Allocator::Host();
  parts.trace = around.trace;
  parts.recorder = recorder_.get();
  ProviderOptions options;
  options.capacity_bytes = around.memory.cache;
  options.checksums = config_.checksums;
  options.most_wanted_first = preset_.row->most_wanted_first;
  MOED_ASSIGN_OR_RETURN(provider_, CachingProvider::Create(std::move(parts), options));
  return absl::OkStatus();
}

LearnedFile ProviderBuilder::LearnedStateFile() const {
  return {config_.learned_state, store_.model_hash(), StrCat("policy ", preset_.policy, ", predictor ", preset_.predictor)};
}

absl::Status ProviderBuilder::LoadLearned(PresetParts& parts) const {
  if (config_.learned_state.empty() || access(config_.learned_state.c_str(), F_OK) != 0) return absl::OkStatus();
  const absl::StatusOr<LearnedTaken> taken = TakeLearned(LearnedStateFile(), *parts.policy, *parts.predictor);
  if (absl::IsOutOfRange(taken.status())) {
    spdlog::warn("--learned-state: {}; learning starts anew", taken.status().message());
    return absl::OkStatus();
  }
  MOED_RETURN_IF_ERROR(Annotate(taken.status(), "--learned-state"));
  spdlog::info("taken up from {}: {} of what was learned; {} start anew, since their size has changed", config_.learned_state,
               FormatBytes(taken->taken_bytes), FormatBytes(taken->left_bytes));
  return absl::OkStatus();
}

absl::Status ProviderBuilder::StartRecording() {
  if (config_.record_routing.empty()) return absl::OkStatus();
  const RoutingShape shape{store_.description().moe_layers, spec_.top_k, spec_.experts, record_bytes_.front()};
  absl::StatusOr<std::unique_ptr<RoutingRecorder>> recorder = RoutingRecorder::Create(config_.record_routing, shape);
  MOED_RETURN_IF_ERROR(Annotate(recorder.status(), "--record-routing"));
  recorder_ = *std::move(recorder);
  return absl::OkStatus();
}

absl::Status ProviderBuilder::Finish() {
  absl::Status written;
  if (!config_.learned_state.empty()) written.Update(Annotate(provider_->SaveLearned(LearnedStateFile()), "--learned-state"));
  if (recorder_ != nullptr) written.Update(Annotate(recorder_->Finish(), "--record-routing"));
  return written;
}

}  // namespace moed
