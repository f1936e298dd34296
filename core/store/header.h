// The first bytes of a store: fixed header and description (docs/store-format.md), both ways.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/file.h"
#include "core/store/description.h"
#include "core/store/layout.h"

namespace moed {

inline constexpr std::string_view kStoreMagic = "MOEDSTOR";
// Of a file, as many as kStoreMagic has; fewer where it has no more or cannot be read.
std::string FirstBytes(const std::string& path);
// What a description is written as: 3 where records are coded, else 1 where every precision has one format, else 2.
inline constexpr uint32_t kOneFormatVersion = 1;
inline constexpr uint32_t kFormatByLayerVersion = 2;
inline constexpr uint32_t kCodedVersion = 3;
uint32_t StoreVersion(const StoreDescription& description);

struct StoreHeader {
  StoreDescription description;  // tokenizer left empty: it lies behind the trunk
  FileLayout layout;
  std::vector<uint64_t> checksums;  // by piece (layout.h)
  uint64_t model_hash = 0;          // XXH3-64 of the description: spec, shapes and the checksums of trunk and experts
};

// The header with its padding, layout.trunk_offset() bytes. `checksums` by piece.
std::string EncodeHeader(const StoreDescription& description, const FileLayout& layout, const std::vector<uint64_t>& checksums);

// Reads and checks everything before the trunk. Codes as StoreReader::Open.
absl::StatusOr<StoreHeader> ReadHeader(const RandomAccessFile& file, uint64_t most_description_bytes);

}  // namespace moed
