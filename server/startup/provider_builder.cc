#include "server/startup/provider_builder.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/notification.h"
#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/store/file_write.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

// What was left aside would be gone once the file is written again. A copy that is there already is of more.
absl::Status KeepWhole(const std::string& path) {
  const std::string copy = path + ".whole";
  if (!IsAbsent(copy)) return absl::OkStatus();
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> whole, OpenBuffered(path));
  const absl::Status copied = ReplaceFile(copy, [&](int fd, const std::string& partial) {
    std::vector<std::byte> buffer(64 << 10);
    for (uint64_t offset = 0; offset < whole->size(); offset += buffer.size()) {
      const auto piece = std::span(buffer).first(std::min<uint64_t>(buffer.size(), whole->size() - offset));
      MOED_RETURN_IF_ERROR(whole->ReadAt(offset, piece));
      MOED_RETURN_IF_ERROR(WriteAt(fd, partial, offset, piece));
    }
    return absl::OkStatus();
  });
  if (copied.ok()) spdlog::info("{} keeps what was left aside", copy);
  return Annotate(copied, "--learned-state");
}

}  // namespace

ProviderBuilder::ProviderBuilder(const Config& config, const StoreReader& store, const ModelSpec& spec)
    : config_(config),
      store_(store),
      spec_(spec),
      router_{spec.top_k, spec.hidden, spec.encoder_layers()},
      learned_state_(config.learned_state),
      residency_(config.residency) {}

absl::StatusOr<std::unique_ptr<ProviderBuilder>> ProviderBuilder::Choose(const Config& config, const StoreReader& store,
                                                                         const ModelSpec& spec) {
  // Not make_unique: the constructor is private.
  std::unique_ptr<ProviderBuilder> path(new ProviderBuilder(config, store, spec));
  MOED_ASSIGN_OR_RETURN(path->preset_, ChoosePreset(config.preset, store));
  const PresetSetup& preset = path->preset_;
  spdlog::info(
      "preset {} ({}): policy {}, predictor {}, fidelity rule {}, router mask {}, cache filled {}; requests that do not say are "
      "served {}",
      preset.row->name, preset.row->description, preset.policy->name, preset.predictor->name, preset.rule->name,
      preset.mask->name, preset.fill ? "while the disk is idle" : "on demand", preset.fidelity.class_name());
  return path;
}

absl::Status ProviderBuilder::Open(const Dependencies& around) {
  ProviderInputs inputs;
  inputs.store = &store_;
  inputs.reads = &around.reads;
  inputs.router = router_;
  inputs.gate = around.gate;
  inputs.table_bytes = TokenTableBytes(around.memory.budget, Needs());
  inputs.clock = &around.clock;
  inputs.allocator = &around.allocator;
  inputs.device = around.device;
  inputs.trace = around.trace;
  inputs.options.capacity_bytes = around.memory.cache;
  inputs.options.most_bytes = around.most_cache;
  inputs.options.least_bytes = around.memory.least_cache;
  inputs.options.checksums = config_.checksums;
  MOED_ASSIGN_OR_RETURN(PresetParts parts, MakeParts(preset_, inputs));
  MOED_RETURN_IF_ERROR(LoadLearned(parts));
  MOED_RETURN_IF_ERROR(LoadResidency(inputs.read_first));
  MOED_RETURN_IF_ERROR(StartRecording(around.memory.budget));
  inputs.recorder = recorder_.get();
  MOED_ASSIGN_OR_RETURN(provider_, BuildProvider(preset_, inputs, std::move(parts)));
  return absl::OkStatus();
}

LearnedFile ProviderBuilder::LearnedStateFile() const { return {learned_state_, store_.model_hash(), LearnersOf(preset_)}; }

absl::Status ProviderBuilder::CheckKept() {
  const absl::Status learned = CheckFile(learned_state_, [this] { return CheckLearned(LearnedStateFile()); });
  // Of an earlier version: learning starts anew.
  if (!absl::IsOutOfRange(learned)) MOED_RETURN_IF_ERROR(Annotate(learned, "--learned-state"));
  const auto read = [this] { return ReadResidency(FileOfResidency(), store_.description()).status(); };
  return Annotate(CheckFile(residency_, read), "--residency");
}

absl::Status ProviderBuilder::CheckFile(std::string& path, absl::FunctionRef<absl::Status()> check) const {
  if (path.empty() || IsAbsent(path)) return absl::OkStatus();
  const absl::Status status = check();
  if (!absl::IsFailedPrecondition(status) || !config_.follows_another) return status;
  path = BesideAnothers(path);
  return IsAbsent(path) ? absl::OkStatus() : check();
}

absl::Status ProviderBuilder::LoadLearned(PresetParts& parts) {
  if (learned_state_.empty() || IsAbsent(learned_state_)) return absl::OkStatus();
  const absl::StatusOr<LearnedTaken> taken = TakeLearned(LearnedStateFile(), [&](LearnedState& state) {
    parts.policy->VisitLearned(state);
    parts.predictor->VisitLearned(state);
  });
  if (absl::IsOutOfRange(taken.status())) {
    spdlog::warn("--learned-state: {}; learning starts anew", StrCat(taken.status().message()));
    return absl::OkStatus();
  }
  MOED_RETURN_IF_ERROR(Annotate(taken.status(), "--learned-state"));
  spdlog::info("taken up from {}: {} of what was learned; {} start anew, since their size has changed", learned_state_,
               FormatBytes(taken->taken_bytes), FormatBytes(taken->left_bytes));
  return taken->left_bytes == 0 ? absl::OkStatus() : KeepWhole(learned_state_);
}

std::string ProviderBuilder::BesideAnothers(const std::string& path) const {
  return StrCat(path, ".", absl::Hex(store_.model_hash(), absl::kZeroPad16));
}

absl::Status ProviderBuilder::LoadResidency(std::vector<CachedKey>& records) {
  if (residency_.empty() || IsAbsent(residency_)) return absl::OkStatus();
  absl::StatusOr<std::vector<CachedKey>> known = ReadResidency(FileOfResidency(), store_.description());
  MOED_RETURN_IF_ERROR(Annotate(known.status(), "--residency"));
  spdlog::info("{} experts were in memory when {} was written: they are read first", known->size(), residency_);
  absl::MutexLock lock(&residency_mutex_);
  records = *std::move(known);
  kept_residency_ = records;
  return absl::OkStatus();
}

absl::Status ProviderBuilder::CheckKeepsResidency() const {
  if (!config_.residency.empty()) return absl::OkStatus();
  return FailedPrecondition("the server keeps no list of experts in memory: it was started without --residency FILE");
}

absl::Status ProviderBuilder::CheckChoosesFreely(std::string_view what) const {
  if (!ChoosesResidents(preset_)) return absl::OkStatus();
  return FailedPrecondition(what, ": preset ", preset_.row->name, " decides itself what is in memory");
}

size_t ProviderBuilder::kept_records() {
  absl::MutexLock lock(&residency_mutex_);
  return kept_residency_.has_value() ? kept_residency_->size() : 0;
}

absl::StatusOr<std::vector<CachedKey>> ProviderBuilder::ReadKeptResidency() const {
  absl::StatusOr<std::vector<CachedKey>> records = ReadResidency(FileOfResidency(), store_.description());
  MOED_RETURN_IF_ERROR(Annotate(records.status(), "--residency"));
  return records;
}

absl::Status ProviderBuilder::KeepResidency() {
  if (config_.residency.empty()) return absl::OkStatus();
  absl::MutexLock lock(&residency_mutex_);
  std::vector<CachedKey> records;
  absl::flat_hash_set<CachedKey> unused;
  for (const ExpertHeat& record : provider_->ResidentRecords()) {
    if (record.uses > 0) {
      records.push_back(record.key);
    } else {
      unused.insert(record.key);
    }
  }
  // What was read first and nobody has used yet stays behind those, in its order.
  std::ranges::copy_if(kept_residency_.value_or(std::vector<CachedKey>()), std::back_inserter(records),
                       [&](const CachedKey& key) { return unused.contains(key); });
  if (records == kept_residency_) return absl::OkStatus();
  MOED_RETURN_IF_ERROR(Annotate(WriteResidency(FileOfResidency(), records), "--residency"));
  kept_residency_ = std::move(records);
  return absl::OkStatus();
}

absl::Status ProviderBuilder::KeepLearned(absl::FunctionRef<absl::Status(std::function<void()>)> between_steps) {
  if (config_.learned_state.empty()) return absl::OkStatus();
  absl::MutexLock lock(&learned_mutex_);
  uint64_t tokens = 0;
  for (const LayerStats& layer : provider_->Stats().layers) tokens += layer.tokens;
  if (tokens == learned_tokens_) return absl::OkStatus();
  const auto visit = [&](LearnedState& state) {
    absl::Notification visited;
    bool whole = false;
    MOED_RETURN_IF_ERROR(between_steps([&] {
      const absl::Cleanup told = [&visited] { visited.Notify(); };  // an exception ends the engine, and nobody waits for it
      provider_->VisitLearned(state);
      whole = true;
    }));
    visited.WaitForNotification();
    return whole ? absl::OkStatus() : Internal("what was learned cannot be shown");
  };
  MOED_RETURN_IF_ERROR(Annotate(TrySaveLearned(LearnedStateFile(), visit), "--learned-state"));
  learned_tokens_ = tokens;
  return absl::OkStatus();
}

absl::Status ProviderBuilder::StartRecording(uint64_t budget) {
  if (config_.record_routing.empty()) return absl::OkStatus();
  const RoutingShape shape{store_.description().moe_layers, spec_.top_k, spec_.experts,
                           store_.largest_expert_bytes(kReferencePrecision)};
  std::string folder = config_.record_routing;
  const auto failed = [](const absl::Status& error) {
    spdlog::error("--record-routing: {}; nothing more is recorded", StrCat(error.message()));
  };
  absl::StatusOr<std::unique_ptr<RoutingRecorder>> recorder = RoutingRecorder::Create(folder, shape, budget, failed);
  if (absl::IsAlreadyExists(recorder.status())) {
    folder = NextTraceFolder(config_.record_routing);
    recorder = RoutingRecorder::Create(folder, shape, budget, failed);
  }
  MOED_RETURN_IF_ERROR(Annotate(recorder.status(), "--record-routing"));
  spdlog::info("routing is recorded in {}", folder);
  recorder_ = *std::move(recorder);
  return absl::OkStatus();
}

absl::Status ProviderBuilder::Finish() {
  absl::Status first;
  const auto note = [&first](const absl::Status& written) {
    if (!written.ok()) spdlog::error("{}", StrCat(written.message()));
    first.Update(written);
  };
  note(KeepResidency());
  note(KeepLearned([](const std::function<void()>& task) {
    task();
    return absl::OkStatus();
  }));
  if (recorder_ != nullptr) note(Annotate(recorder_->Finish(), "--record-routing"));
  return first;
}

}  // namespace moed
