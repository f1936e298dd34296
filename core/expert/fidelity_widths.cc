#include "core/expert/fidelity_widths.h"

#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/expert/expert_index.h"
#include "core/expert/plan_file.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

using Widths = std::vector<std::vector<int>>;  // [MoE layer][expert]

struct WidthsFile {
  std::string model_hash;
  Widths precisions;
};

absl::StatusOr<WidthsFile> ReadWidths(const std::string& path) {
  MOED_ASSIGN_OR_RETURN(const std::string text, ReadPlanFile(path));
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    return WidthsFile{json.at("model_hash").get<std::string>(), json.at("precisions").get<Widths>()};
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument("not {\"model_hash\": ..., \"precisions\": [[...]]}: ", error.what());
  }
}

absl::Status CheckWidths(const WidthsFile& file, const RuleContext& context) {
  MOED_RETURN_IF_ERROR(CheckPlanHash(file.model_hash, context.model_hash));
  const size_t layers = context.model.moe_layers.size();
  if (file.precisions.size() != layers) {
    return InvalidArgument(file.precisions.size(), " layers, the store has ", layers, " with experts");
  }
  for (size_t layer = 0; layer < layers; ++layer) {
    const std::vector<int>& experts = file.precisions[layer];
    if (experts.size() != static_cast<size_t>(context.model.experts_per_layer)) {
      return InvalidArgument("precisions[", layer, "] has ", experts.size(), " experts, the store ",
                             context.model.experts_per_layer);
    }
    for (size_t expert = 0; expert < experts.size(); ++expert) {
      if (experts[expert] >= 0 && experts[expert] < context.model.precisions) continue;
      return InvalidArgument("precisions[", layer, "][", expert, "] is ", experts[expert], ", the store's are 0 to ",
                             context.model.precisions - 1);
    }
  }
  return absl::OkStatus();
}

class WidthsRule final : public FidelityRule {
 public:
  WidthsRule(const Widths& widths, const PolicyContext& model) : index_(model.moe_layers, model.experts_per_layer, 1) {
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

absl::StatusOr<std::unique_ptr<FidelityRule>> MakeWidthsRule(const RuleContext& context) {
  const std::string path = context.options.Text(kWidthsOptions[0]);
  if (path.empty()) return InvalidArgument("widths: the file with the precision of every expert is missing");
  absl::StatusOr<WidthsFile> file = ReadWidths(path);
  absl::Status status = file.status();
  if (status.ok()) status = CheckWidths(*file, context);
  if (!status.ok()) return InvalidArgument("widths: ", path, ": ", status.message());
  return std::make_unique<WidthsRule>(file->precisions, context.model);
}

}  // namespace moed
