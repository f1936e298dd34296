#include "core/expert/pack_command.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/quant/format.h"

namespace moed {

namespace {

// Of the formats of 3 bits and fewer the one that loses least (docs/quality.md).
constexpr FormatId kLowFormat = FormatId::kQ2P;

}  // namespace

std::string PackCommand(const StoreReader& store, std::string_view formats) {
  return StrCat("moed-pack CHECKPOINT ", store.path(), " --force --expert-formats ", formats);
}

std::string FormatsOf(const StoreReader& store) {
  std::string formats;
  for (const ExpertPrecision& precision : store.description().precisions) {
    formats += StrCat(formats.empty() ? "" : ",", OneFormat(precision) ? PrecisionName(precision) : "keep");
  }
  return formats;
}

std::string FormatsWithOneMore(const StoreReader& store) {
  const std::string_view low = FormatOf(kLowFormat).name;
  const auto is_low = [&](const ExpertPrecision& precision) { return PrecisionName(precision) == low; };
  const bool there = std::ranges::any_of(store.description().precisions, is_low);
  return there ? StrCat("q8,", low) : StrCat(FormatsOf(store), ",", low);
}

}  // namespace moed
