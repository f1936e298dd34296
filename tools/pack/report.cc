#include "tools/pack/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

#include "core/base/byte_size.h"
#include "core/base/json_value.h"
#include "core/base/status.h"
#include "nlohmann/json.hpp"
#include "tools/terminal/amount.h"

namespace moed {
namespace {

using Json = nlohmann::ordered_json;

struct Row {
  std::string name;
  uint64_t bytes;
  std::string remark;
};

// "4,096", "4,096 to 8,192" where layers differ.
std::string RecordText(const ExpertPrecision& precision) {
  uint64_t least = UINT64_MAX;
  for (const ExpertLayout& layout : precision.layers) least = std::min(least, layout.record_bytes);
  const uint64_t most = LargestRecordBytes(precision);
  return least == most ? Grouped(most) : StrCat(Grouped(least), " to ", Grouped(most));
}

// Before a pack the bytes are those that it takes at most.
std::string CodedText(const StoreDescription& description, double share) {
  if (!description.coded()) return "";
  return share < 1 ? StrCat(", coded to ", static_cast<double>(std::lround(1000 * share)) / 10, " %")
                   : ", coded to no more than this";
}

// What the layers have where they differ.
Json LayersJson(const StoreDescription& description, const ExpertPrecision& precision) {
  Json layers;
  for (size_t i = 0; i < precision.layers.size(); ++i) {
    Json layer = {{"layer", description.moe_layers[i].value()}};
    for (const ExpertSegment& segment : precision.layers[i].segments) {
      layer[std::string(PartName(segment.part))] = FormatOf(segment.format).name;
    }
    layer["record_bytes"] = precision.layers[i].record_bytes;
    layers.push_back(std::move(layer));
  }
  return layers;
}

// Every byte of the file belongs to one row.
std::vector<Row> SizeRows(const StoreDescription& description, const FileLayout& layout) {
  const uint64_t tokenizer_bytes = layout.PieceAt(layout.TokenizerPiece()).bytes;
  std::vector<Row> rows = {
      {"header", layout.trunk_offset(), "with the description"},
      {"trunk", description.trunk_bytes, StrCat(description.trunk.size(), " tensors")},
      {"tokenizer", layout.records_offset() - layout.tokenizer_offset(), StrCat(Grouped(tokenizer_bytes), " without padding")}};
  for (size_t p = 0; p < description.precisions.size(); ++p) {
    const ExpertPrecision& precision = description.precisions[p];
    const auto all = static_cast<double>(AllRecordBytes(description, static_cast<Precision>(p)));
    const double share = StoredShare(description, static_cast<Precision>(p));
    rows.push_back({StrCat("experts ", PrecisionName(precision)), static_cast<uint64_t>(std::llround(all * share)),
                    StrCat(description.moe_layers.size(), " layers x ", description.experts_per_layer, " experts x ",
                           RecordText(precision), p == kReferencePrecision ? ", reference" : "", CodedText(description, share))});
  }
  rows.push_back({"file", layout.file_bytes(), FormatBytes(layout.file_bytes())});
  return rows;
}

std::string HashText(uint64_t hash) { return StrCat(absl::Hex(hash, absl::kZeroPad16)); }

std::string Spec(const StoreDescription& description, int indent) {
  const absl::StatusOr<Json> spec = ParseForeignJson<Json>("model spec", description.model_spec);
  return spec.ok() ? spec->dump(indent, ' ', false, Json::error_handler_t::replace) : description.model_spec;
}

// What a store holds.
void AddContents(const StoreDescription& description, const FileLayout& layout, Json& json) {
  json["header_bytes"] = layout.trunk_offset();
  json["trunk_bytes"] = description.trunk_bytes;
  json["tokenizer_bytes"] = layout.PieceAt(layout.TokenizerPiece()).bytes;
  json["experts_per_layer"] = description.experts_per_layer;
  for (const LayerId layer : description.moe_layers) json["moe_layers"].push_back(layer.value());
  for (size_t p = 0; p < description.precisions.size(); ++p) {
    const ExpertPrecision& precision = description.precisions[p];
    json["precisions"].push_back({{"format", PrecisionName(precision)},
                                  {"record_bytes", LargestRecordBytes(precision)},
                                  {"total_bytes", AllRecordBytes(description, static_cast<Precision>(p))},
                                  {"stored_share", StoredShare(description, static_cast<Precision>(p))}});
    if (!OneFormat(precision)) json["precisions"].back()["layers"] = LayersJson(description, precision);
  }
  for (const TensorInfo& tensor : description.trunk) {
    json["trunk"].push_back({{"name", tensor.name},
                             {"format", FormatOf(tensor.format).name},
                             {"vector", tensor.vector},
                             {"rows", tensor.rows},
                             {"columns", tensor.cols},
                             {"bytes", tensor.bytes}});
  }
  json["model_spec"] = ParseForeignJson<Json>("model spec", description.model_spec).value_or(Json(description.model_spec));
}

std::string Dumped(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string SizeTable(const StoreDescription& description, const FileLayout& layout) {
  std::string text;
  for (const Row& row : SizeRows(description, layout)) {
    char line[200];
    std::snprintf(line, sizeof line, "%-14s %18s bytes   %s\n", row.name.c_str(), Grouped(row.bytes).c_str(), row.remark.c_str());
    text += line;
  }
  return text;
}

std::string ErrorTable(const StoreDescription& description, const EncodingErrors& errors) {
  const auto percent = [](const EncodingError& error) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f %%", 100 * error.relative());
    return std::string(text);
  };
  std::string lines;
  if (errors.trunk.lost > 0) lines += StrCat("  trunk: ", percent(errors.trunk), "\n");
  for (size_t p = 0; p < errors.experts.size(); ++p) {
    std::string parts;
    for (int part = 0; part < kExpertParts; ++part) {
      const EncodingError& error = errors.experts[p][static_cast<size_t>(part)];
      if (error.lost == 0) continue;
      parts += StrCat(parts.empty() ? "" : ", ", PartName(static_cast<ExpertPart>(part)), " ", percent(error));
    }
    if (!parts.empty()) lines += StrCat("  experts ", PrecisionName(description.precisions[p]), ": ", parts, "\n");
  }
  return lines.empty() ? "" : StrCat("lost in encoding (RMS over the RMS of the weights, on a sample of the rows):\n", lines);
}

std::string InspectText(const StoreReader& store) {
  const StoreDescription& description = store.description();
  std::string text = StrCat(store.path(), "\nmodel hash ", HashText(store.model_hash()), "\n\n",
                            SizeTable(description, store.layout()), "\ntrunk\n");
  for (const TensorInfo& tensor : description.trunk) {
    char line[400];
    std::snprintf(line, sizeof line, "  %-32s %-6s (%d, %d)%18s bytes\n", tensor.name.c_str(),
                  tensor.vector ? "vector" : std::string(FormatOf(tensor.format).name).c_str(), tensor.rows, tensor.cols,
                  Grouped(tensor.bytes).c_str());
    text += line;
  }
  return StrCat(text, "\nmodel spec\n", Spec(description, 2), "\n");
}

std::string InspectJson(const StoreReader& store) {
  Json json;
  json["path"] = store.path();
  json["file_bytes"] = store.file_bytes();
  json["model_hash"] = HashText(store.model_hash());
  AddContents(store.description(), store.layout(), json);
  return Dumped(json);
}

std::string DryRunJson(const Checkpoint& checkpoint, const PackPlan& plan, const DryRunFigures& figures) {
  Json json;
  json["checkpoint"] = checkpoint.path();
  json["checkpoint_bytes"] = checkpoint.weight_bytes();
  json["checkpoint_tensors"] = checkpoint.tensor_count();
  json["file_bytes"] = plan.layout.file_bytes();
  json["smallest_memory_budget_bytes"] = figures.budgets.smallest.budget;
  json["comfortable_memory_budget_bytes"] = figures.budgets.comfortable.budget;
  json["encoding_seconds"] = figures.encoding_seconds;
  json["free_space"] = figures.free_space.empty() ? Json("enough") : Json(figures.free_space);
  json["tokenizer_memory_bytes"] = plan.tokenizer_bytes;
  json["chat_template_bytes"] = plan.chat_template_bytes;
  AddContents(plan.description, plan.layout, json);
  return Dumped(json);
}

}  // namespace moed
