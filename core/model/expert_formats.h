// The formats of a store's experts, by what a provider hands out.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "core/base/ids.h"
#include "core/quant/format.h"
#include "core/store/description.h"

namespace moed {

class ExpertFormats {
 public:
  explicit ExpertFormats(const StoreDescription& store)
      : precisions_(store.precisions.size()), formats_((static_cast<size_t>(store.moe_layers.back().value()) + 1) * precisions_) {
    for (size_t p = 0; p < precisions_; ++p) {
      for (size_t i = 0; i < store.moe_layers.size(); ++i) {
        for (const ExpertSegment& segment : store.precisions[p].layers[i].segments) {
          formats_[IndexOf(store.moe_layers[i], p)][static_cast<size_t>(segment.part)] = segment.format;
        }
      }
    }
  }

  // `layer`: one with experts.
  FormatId Of(LayerId layer, Precision precision, ExpertPart part) const {
    return formats_[IndexOf(layer, precision)][static_cast<size_t>(part)];
  }

 private:
  size_t IndexOf(LayerId layer, size_t precision) const { return static_cast<size_t>(layer.value()) * precisions_ + precision; }

  size_t precisions_;
  std::vector<std::array<FormatId, kExpertParts>> formats_;  // [layer][precision]
};

}  // namespace moed
