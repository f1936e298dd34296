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
  for (const ExpertLayout& layout : store.description().precisions) {
    formats += StrCat(formats.empty() ? "" : ",", FormatOf(layout.format).name);
  }
  return formats;
}

std::string FormatsWithOneMore(const StoreReader& store) {
  const auto is_q2 = [](const ExpertLayout& layout) { return layout.format == FormatId::kQ2; };
  return std::ranges::any_of(store.description().precisions, is_q2) ? "q8,q2" : StrCat(FormatsOf(store), ",q2");
}

}  // namespace moed
