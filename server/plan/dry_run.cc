#include "server/plan/dry_run.h"

#include <filesystem>
#include <utility>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/model/expert_shapes.h"
#include "core/store/layout.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

using Json = nlohmann::ordered_json;

// The parts' formats where layers differ: {"gate": "q4", ...}.
absl::StatusOr<PartFormats> FormatsOfParts(const Json& layer, const PartShapes& shapes) {
  PartFormats formats{};
  for (const ExpertPart part : PartsOf(shapes)) {
    const auto name = layer.at(std::string(PartName(part))).get<std::string>();
    MOED_ASSIGN_OR_RETURN(formats[static_cast<size_t>(part)], ParseFormat(name));
  }
  return formats;
}

absl::StatusOr<ExpertPrecision> PrecisionOf(const Json& json, const PartShapes& shapes, size_t layers) {
  if (!json.contains("layers")) {
    MOED_ASSIGN_OR_RETURN(const FormatId format, ParseFormat(json.at("format").get<std::string>()));
    return LayOutExperts(format, shapes, layers);
  }
  ExpertPrecision precision;
  for (const Json& layer : json.at("layers")) {
    MOED_ASSIGN_OR_RETURN(const PartFormats formats, FormatsOfParts(layer, shapes));
    precision.layers.push_back(LayOutExpert(formats, shapes));
  }
  if (precision.layers.size() != layers) return DataLoss("a precision of ", precision.layers.size(), " layers");
  return precision;
}

absl::StatusOr<TensorInfo> TensorOf(const Json& json) {
  TensorInfo tensor{.name = json.at("name").get<std::string>(),
                    .vector = json.at("vector").get<bool>(),
                    .rows = json.at("rows").get<int>(),
                    .cols = json.at("columns").get<int>()};
  MOED_ASSIGN_OR_RETURN(tensor.format, ParseFormat(json.at("format").get<std::string>()));
  return tensor;
}

absl::StatusOr<StoreDescription> DescriptionOf(const Json& json, const ModelSpec& spec) {
  StoreDescription store;
  store.model_spec = json.at("model_spec").dump();
  for (const Json& layer : json.at("moe_layers")) store.moe_layers.push_back(LayerId(layer.get<int32_t>()));
  store.experts_per_layer = json.at("experts_per_layer").get<int>();
  const PartShapes shapes = ExpertShapes(spec);
  for (const Json& precision : json.at("precisions")) {
    MOED_ASSIGN_OR_RETURN(store.precisions.emplace_back(), PrecisionOf(precision, shapes, store.moe_layers.size()));
  }
  for (const Json& tensor : json.at("trunk")) {
    MOED_ASSIGN_OR_RETURN(store.trunk.emplace_back(), TensorOf(tensor));
  }
  LayOutTrunk(store);
  MOED_RETURN_IF_ERROR(CheckLayers(store));
  if (store.precisions.empty() || store.trunk_bytes != json.at("trunk_bytes").get<uint64_t>()) {
    return DataLoss("sizes that contradict each other");
  }
  return store;
}

// The checkpoint itself, or the largest file of its folder.
std::string LargestFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  std::string largest;
  uintmax_t most = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const uintmax_t bytes = entry.is_regular_file(error) ? entry.file_size(error) : 0;
    if (bytes > most) largest = entry.path().string();
    most = std::max(most, bytes);
  }
  return largest;
}

absl::StatusOr<PlannedModel> ModelOf(const std::string& path, const Json& json) {
  PlannedModel model{.path = path, .packed = false, .weights = LargestFile(path)};
  MOED_ASSIGN_OR_RETURN(model.spec, SpecFromJson(json.at("model_spec").dump()));
  MOED_ASSIGN_OR_RETURN(model.store, DescriptionOf(json, model.spec));
  model.tokenizer_bytes = json.at("tokenizer_memory_bytes").get<uint64_t>();
  model.chat_template_bytes = json.at("chat_template_bytes").get<uint64_t>();
  MOED_ASSIGN_OR_RETURN(const PresetSetup preset, ChoosePreset(PresetChoice{}));
  model.preset = NeedsOfPreset(preset, model.store, model.spec);
  const uint64_t record = LargestRecordBytes(model.store.precisions[kReferencePrecision]);
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(model.weights, error);
  if (error) return NotFound("no file of ", path, " can be read to measure the disk");
  model.records = {0, bytes / record, record};
  return model;
}

}  // namespace

absl::StatusOr<PlannedModel> ModelOfDryRun(const std::string& path, std::string_view text) {
  const std::string name = StrCat("moed-pack --dry-run --json of ", path);
  const absl::StatusOr<Json> json = ParseForeignJson<Json>(name, text);
  if (!json.ok()) return DataLoss(json.status().message());
  try {
    absl::StatusOr<PlannedModel> model = ModelOf(path, *json);
    if (model.ok() || absl::IsNotFound(model.status())) return model;
    return DataLoss(name, ": ", model.status().message());
  } catch (const nlohmann::json::exception& error) {  // the library's own
    return DataLoss(name, ": ", error.what());
  }
}

}  // namespace moed
