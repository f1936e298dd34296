#include "core/expert/fidelity/widths.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/expert/expert_index.h"
#include "core/expert/plan_reader.h"
#include "core/store/store.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

constexpr int kMostPrecision = std::numeric_limits<Precision>::max();

struct WidthsFile {
  std::string model_hash;
  ExpertWidths precisions;
};

absl::StatusOr<WidthsFile> ParseWidths(const std::string& path) {
  MOED_ASSIGN_OR_RETURN(const std::string text, ReadPlanFile(path));
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    for (const nlohmann::json& layer : json.at("precisions")) {
      for (const nlohmann::json& width : layer)
        MOED_RETURN_IF_ERROR(WholeNumber("a precision", width, 0, kMostPrecision).status());
    }
    return WidthsFile{json.at("model_hash").get<std::string>(), json.at("precisions").get<ExpertWidths>()};
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument("not {\"model_hash\": ..., \"precisions\": [[...]]}: ", error.what());
  }
}

absl::Status CheckWidths(const WidthsFile& file, uint64_t model_hash, int layers, int experts, int precisions) {
  MOED_RETURN_IF_ERROR(CheckPlanHash(file.model_hash, model_hash));
  if (file.precisions.size() != static_cast<size_t>(layers)) {
    return InvalidArgument(file.precisions.size(), " layers, the store has ", layers, " with experts");
  }
  for (size_t layer = 0; layer < file.precisions.size(); ++layer) {
    const std::vector<int>& widths = file.precisions[layer];
    if (widths.size() != static_cast<size_t>(experts)) {
      return InvalidArgument("precisions[", layer, "] has ", widths.size(), " experts, the store ", experts);
    }
    for (size_t expert = 0; expert < widths.size(); ++expert) {
      if (widths[expert] >= 0 && widths[expert] < precisions) continue;
      return InvalidArgument("precisions[", layer, "][", expert, "] is ", widths[expert], ", the store's are 0 to ",
                             precisions - 1);
    }
  }
  return absl::OkStatus();
}

class WidthsRule final : public FidelityRule {
 public:
  WidthsRule(const ExpertWidths& widths, const ExpertModelShape& model) : index_(model.moe_layers, model.experts_per_layer, 1) {
    for (const std::vector<int>& layer : widths) precisions_.insert(precisions_.end(), layer.begin(), layer.end());
  }

  void Resolve(const LayerDemand& demand, std::span<Action> actions) override {
    for (size_t i = 0; i < actions.size(); ++i) {
      actions[i].precision = PrefetchPrecision({demand.routing.layer, demand.wanted[i].expert}, kReferencePrecision);
    }
  }
  Precision PrefetchPrecision(const ExpertKey& key, Precision) const override {
    return precisions_[index_.Of({key.layer, key.expert, 0})];
  }
  size_t memory_bytes() const override { return precisions_.size(); }

 private:
  const ExpertIndex index_;
  std::vector<Precision> precisions_;  // by index_
};

}  // namespace

absl::StatusOr<ExpertWidths> ReadWidths(const std::string& path, uint64_t model_hash, int layers, int experts, int precisions) {
  absl::StatusOr<WidthsFile> file = ParseWidths(path);
  absl::Status status = file.status();
  if (status.ok()) status = CheckWidths(*file, model_hash, layers, experts, precisions);
  if (!status.ok()) return InvalidArgument("widths: ", path, ": ", status.message());
  return std::move(file->precisions);
}

absl::StatusOr<std::any> ReadWidthsFile(const std::string& path, const StoreReader& store) {
  const StoreDescription& description = store.description();
  MOED_ASSIGN_OR_RETURN(ExpertWidths widths,
                        ReadWidths(path, store.model_hash(), static_cast<int>(description.moe_layers.size()),
                                   description.experts_per_layer, static_cast<int>(description.precisions.size())));
  return std::make_shared<const ExpertWidths>(std::move(widths));
}

absl::Status CheckWidthsGiven(const PartOptions& options) {
  if (options.Unread(kWidthsOption) || options.File<ExpertWidths>(kWidthsOption) != nullptr) return absl::OkStatus();
  return InvalidArgument(
      "widths: the file with the precision of every expert is missing; \"moed-plan widths STORE TEXT\" writes one, for "
      "--preset-options widths=FILE");
}

absl::StatusOr<std::unique_ptr<FidelityRule>> MakeWidthsRule(const PartContext& context, const PartOptions& options) {
  MOED_RETURN_IF_ERROR(CheckWidthsGiven(options));
  const auto widths = options.File<ExpertWidths>(kWidthsOption);
  MOED_CHECK(widths != nullptr);
  return std::make_unique<WidthsRule>(*widths, context.model);
}

PartMemory WidthsRuleMemory(const PartContext& context, const PartOptions&) {
  return {.fixed_bytes = context.model.experts() * sizeof(Precision)};
}

}  // namespace moed
