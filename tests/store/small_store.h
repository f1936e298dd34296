// A small store with random contents, and its pieces to compare with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "core/store/store.h"
#include "core/store/writer.h"
#include "tests/temporary_folder.h"

namespace moed {

inline StoreDescription SmallDescription() {
  StoreDescription description;
  description.model_spec = R"({"family":"test"})";
  description.moe_layers = {LayerId(0), LayerId(2)};
  description.experts_per_layer = 3;
  const PartShapes shapes = {MatrixShape{20, 70}, MatrixShape{20, 70}, MatrixShape{70, 20}};
  for (const FormatId format : {FormatId::kQ8, FormatId::kQ4}) description.precisions.push_back(LayOutExperts(format, shapes, 2));
  description.trunk = {{.name = "embed", .format = FormatId::kBF16, .rows = 9, .cols = 70},
                       {.name = "norm", .format = FormatId::kF32, .vector = true, .rows = 1, .cols = 70},
                       {.name = "router", .format = FormatId::kF16, .rows = 3, .cols = 70}};
  LayOutTrunk(description);
  description.tokenizer = "a tokenizer, opaque here";
  return description;
}

// The same with formats that differ by layer and by part, and records that differ in size.
inline StoreDescription MixedDescription() {
  StoreDescription description = SmallDescription();
  const PartShapes shapes = {MatrixShape{20, 70}, MatrixShape{20, 70}, MatrixShape{70, 20}};
  constexpr FormatId f32 = FormatId::kF32, q8 = FormatId::kQ8, q4 = FormatId::kQ4, q2 = FormatId::kQ2;
  description.precisions = {{{LayOutExpert({q4, q4, f32}, shapes), LayOutExpert({q4, q8, q8}, shapes)}},
                            {{LayOutExpert({q2, q2, q2}, shapes), LayOutExpert({q2, q2, f32}, shapes)}}};
  return description;
}

// The same, coded.
inline StoreDescription CodedDescription() {
  StoreDescription description = MixedDescription();
  MarkCoded(description);
  return description;
}

// The same of experts without gates.
inline StoreDescription UngatedDescription() {
  StoreDescription description = SmallDescription();
  const PartShapes shapes = {MatrixShape{}, MatrixShape{20, 70}, MatrixShape{70, 20}};
  description.precisions = {LayOutExperts(FormatId::kQ8, shapes, 2),
                            {{LayOutExpert({FormatId::kF32, FormatId::kQ4, FormatId::kQ2}, shapes),
                              LayOutExpert({FormatId::kF32, FormatId::kQ4, FormatId::kQ4}, shapes)}}};
  return description;
}

inline std::string RandomBytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}
inline std::string TensorContents(const StoreDescription& description, size_t tensor) {
  return RandomBytes(description.trunk[tensor].bytes, 100 + tensor);
}
inline std::string SegmentContents(const StoreDescription& description, const CachedKey& key, ExpertPart part) {
  const auto position = std::ranges::find(description.moe_layers, key.layer) - description.moe_layers.begin();
  const ExpertSegment& segment = *description.precisions[key.precision].layers[position].Find(part);
  std::string bytes = RandomBytes(
      segment.bytes, 1000u + key.layer.value() * 512u + key.expert * 64u + key.precision * 8u + static_cast<int>(part));
  // Half of every byte, where coding is to have something to do.
  if (description.coded()) std::ranges::for_each(bytes, [](char& byte) { byte &= 0x0f; });
  return bytes;
}

inline std::vector<CachedKey> AllKeys(const StoreDescription& description) {
  std::vector<CachedKey> keys;
  for (const LayerId layer : description.moe_layers) {
    for (int expert = 0; expert < description.experts_per_layer; ++expert) {
      for (size_t p = 0; p < description.precisions.size(); ++p) keys.push_back({layer, expert, static_cast<Precision>(p)});
    }
  }
  return keys;
}

inline std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

// Writes what is missing, at most `limit` pieces, tensors first. Returns how many it wrote.
inline size_t WritePieces(StoreWriter& writer, const StoreDescription& description, size_t limit = SIZE_MAX) {
  size_t written = 0;
  for (size_t i = 0; i < description.trunk.size() && written < limit; ++i) {
    if (writer.HasTensor(i)) continue;
    EXPECT_TRUE(writer.AppendTensor(i, Bytes(TensorContents(description, i))).ok());
    ++written;
  }
  for (const CachedKey& key : AllKeys(description)) {
    for (const ExpertSegment& segment : description.precisions[0].layers[0].segments) {
      const ExpertPart part = segment.part;
      if (written >= limit) break;
      if (writer.HasExpert(key, part)) continue;
      EXPECT_TRUE(writer.AppendExpert(key, part, Bytes(SegmentContents(description, key, part))).ok());
      ++written;
    }
  }
  return written;
}

// A store whose trunk is this table, which does not begin on a page, and a matrix behind it.
inline StoreDescription TableDescription(const std::string& name, FormatId format, int rows, int cols) {
  StoreDescription description = SmallDescription();
  description.trunk = {{.name = "norm", .format = FormatId::kF32, .vector = true, .rows = 1, .cols = 70},
                       {.name = name, .format = format, .rows = rows, .cols = cols},
                       {.name = "router", .format = FormatId::kF16, .rows = 30, .cols = 70}};
  LayOutTrunk(description);
  return description;
}

// The trunk at once. `out`: trunk_bytes of it.
inline absl::Status ReadTrunkInto(const StoreReader& store, std::span<std::byte> out) {
  const auto place = [&](uint64_t offset) { return out.subspan(offset); };
  return store.ReadTrunk(nullptr, place, [](uint64_t, std::span<const std::byte>) { return absl::OkStatus(); });
}

inline std::vector<FormatId> AllFormats() {
  std::vector<FormatId> ids;
  for (const Format& format : Formats()) ids.push_back(format.id);
  return ids;
}

inline std::string FileContents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::string WriteSmallStore(const std::string& path, const StoreDescription& description = SmallDescription()) {
  auto writer = StoreWriter::Open(path, description, {});
  EXPECT_TRUE(writer.ok()) << writer.status();
  WritePieces(**writer, description);
  const absl::Status finished = (*writer)->Finish();
  EXPECT_TRUE(finished.ok()) << finished;
  return FileContents(path);
}

}  // namespace moed
