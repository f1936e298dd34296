#include "core/expert/pack_command.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/quant/format.h"

namespace moed {

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
  const auto is_q2 = [](const ExpertPrecision& precision) { return PrecisionName(precision) == FormatOf(FormatId::kQ2).name; };
  return std::ranges::any_of(store.description().precisions, is_q2) ? "q8,q2" : StrCat(FormatsOf(store), ",q2");
}

}  // namespace moed
