#include "core/model/matrix_parts.h"

#include <span>
#include <utility>

namespace moed {

TensorPart PartOf(std::string name, int rows, int cols, const RowsOf& from) {
  return {.name = std::move(name),
          .whole = from.whole,
          .whole_shape = {static_cast<uint64_t>(from.whole_rows), static_cast<uint64_t>(cols)},
          .rows = rows,
          .cols = cols,
          .offset = from.first * cols,
          .row_stride = cols,
          .group_rows = from.group,
          .group_stride = int64_t{from.groups_apart} * cols};
}

TensorPart TapsOf(std::string name, std::string whole, int channels, int taps, bool flat) {
  std::vector<uint64_t> shape = {static_cast<uint64_t>(channels), 1, static_cast<uint64_t>(taps)};
  if (flat) shape.erase(shape.begin() + 1);
  return {.name = std::move(name),
          .whole = std::move(whole),
          .whole_shape = std::move(shape),
          .rows = taps,
          .cols = channels,
          .row_stride = 1,
          .col_stride = taps};
}

namespace {

// Parts that follow each other.
struct NamedRows {
  const char* name;
  int rows;
};
void AddRows(std::span<const NamedRows> rows, int hidden, const std::string& prefix, std::vector<TensorPart>& parts) {
  int whole = 0;
  for (const NamedRows& part : rows) whole += part.rows;
  int64_t first = 0;
  for (const NamedRows& part : rows) {
    parts.push_back(PartOf(prefix + part.name, part.rows, hidden, {prefix + "weight", whole, first}));
    first += part.rows;
  }
}

}  // namespace

void AddQueryKeyValue(const ModelSpec& spec, const std::string& prefix, std::vector<TensorPart>& parts) {
  const int keys = spec.kv_heads * spec.head_dim;
  const NamedRows rows[] = {{"query", spec.heads * spec.head_dim}, {"key", keys}, {"value", keys}};
  AddRows(rows, spec.hidden, prefix, parts);
}

void AddMamba2Projections(const Mamba2Shape& shape, int hidden, const std::string& prefix, std::vector<TensorPart>& parts) {
  const NamedRows rows[] = {{"gate", shape.Width()},
                            {"value", shape.Width()},
                            {"key", shape.GroupsWidth()},
                            {"query", shape.GroupsWidth()},
                            {"step", shape.heads}};
  AddRows(rows, hidden, prefix, parts);
}

void AddShortConvolutionProjections(int hidden, const std::string& prefix, std::vector<TensorPart>& parts) {
  const NamedRows rows[] = {{"key", hidden}, {"gate", hidden}, {"value", hidden}};
  AddRows(rows, hidden, prefix, parts);
}

}  // namespace moed
