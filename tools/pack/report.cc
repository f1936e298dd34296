#include "tools/pack/report.h"

#include <cstdio>
#include <string_view>
#include <vector>

#include "core/base/byte_size.h"
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

uint64_t RecordCount(const StoreDescription& description) {
  return description.moe_layers.size() * static_cast<uint64_t>(description.experts_per_layer);
}

// Every byte of the file belongs to one row.
std::vector<Row> SizeRows(const StoreDescription& description, const FileLayout& layout) {
  const uint64_t tokenizer_bytes = layout.PieceAt(layout.TokenizerPiece()).bytes;
  std::vector<Row> rows = {
      {"header", layout.trunk_offset(), "with the description"},
      {"trunk", description.trunk_bytes, StrCat(description.trunk.size(), " tensors")},
      {"tokenizer", layout.records_offset() - layout.tokenizer_offset(), StrCat(Grouped(tokenizer_bytes), " without padding")}};
  for (const ExpertLayout& precision : description.precisions) {
    rows.push_back({StrCat("experts ", FormatOf(precision.format).name), precision.record_bytes * RecordCount(description),
                    StrCat(description.moe_layers.size(), " layers x ", description.experts_per_layer, " experts x ",
                           Grouped(precision.record_bytes), rows.size() == 3 ? ", reference" : "")});
  }
  rows.push_back({"file", layout.file_bytes(), FormatBytes(layout.file_bytes())});
  return rows;
}

std::string HashText(uint64_t hash) { return StrCat(absl::Hex(hash, absl::kZeroPad16)); }

std::string Spec(const StoreDescription& description, int indent) {
  const Json spec = Json::parse(description.model_spec, nullptr, false);
  return spec.is_discarded() ? description.model_spec : spec.dump(indent, ' ', false, Json::error_handler_t::replace);
}

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
  const StoreDescription& description = store.description();
  Json json;
  json["path"] = store.path();
  json["file_bytes"] = store.file_bytes();
  json["model_hash"] = HashText(store.model_hash());
  json["header_bytes"] = store.layout().trunk_offset();
  json["trunk_bytes"] = description.trunk_bytes;
  json["tokenizer_bytes"] = store.layout().PieceAt(store.layout().TokenizerPiece()).bytes;
  json["experts_per_layer"] = description.experts_per_layer;
  for (const LayerId layer : description.moe_layers) json["moe_layers"].push_back(layer.value());
  for (const ExpertLayout& precision : description.precisions) {
    json["precisions"].push_back({{"format", FormatOf(precision.format).name},
                                  {"record_bytes", precision.record_bytes},
                                  {"total_bytes", precision.record_bytes * RecordCount(description)}});
  }
  for (const TensorInfo& tensor : description.trunk) {
    json["trunk"].push_back({{"name", tensor.name},
                             {"format", FormatOf(tensor.format).name},
                             {"vector", tensor.vector},
                             {"rows", tensor.rows},
                             {"columns", tensor.cols},
                             {"bytes", tensor.bytes}});
  }
  json["model_spec"] = Json::parse(description.model_spec, nullptr, false);
  if (json["model_spec"].is_discarded()) json["model_spec"] = description.model_spec;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace moed
