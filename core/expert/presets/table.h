// Named combinations of the expert path's parts: who leaves the cache, who is read ahead, what is masked, lowered or skipped, how
// much cache there is. One row per preset, which is data alone; tests iterate the table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/expert/part_options.h"

namespace moed {

enum class CacheKind : uint8_t {
  kWhole,     // what the memory budget leaves
  kOneToken,  // what one token uses in a layer: the baselines without a cache
  kAll,       // every expert at the precision that the preset uses, or the daemon does not start
};

struct PresetRow {
  std::string_view name;
  std::string_view description;
  std::string_view source = {};
  // Names of rows.
  std::string_view policy = "lru";
  std::string_view predictor = "none";
  std::string_view mask = "none";
  std::string_view rule = "exact";
  std::span<const OptionValue> values = {};        // what makes it this preset, and is not for anyone else to say
  std::span<const OptionRow* const> without = {};  // options of its parts that have no meaning beside those values
  bool fill = false;                               // free room of the cache is filled while the disk is idle
  CacheKind cache = CacheKind::kWhole;
  bool most_wanted_first = false;  // a prompt's experts are read in order of the tokens that chose them
  bool whole_layers = false;       // a layer's other experts are read as well, and waited for
};
std::span<const PresetRow> Presets();

}  // namespace moed
