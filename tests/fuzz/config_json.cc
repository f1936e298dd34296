// config.json of a checkpoint, and the description of a model that a store carries: what the first reader accepts survives the
// way through the second.
#include "core/model/family.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::Text(data, size);
  (void)SpecFromJson(text);
  const auto family = FamilyOf(text);
  if (!family.ok()) return 0;
  for (const std::string_view generation_config : {std::string_view(), text}) {
    const auto spec = (*family)->read_spec(text, generation_config);
    if (spec.ok()) MOED_CHECK(SpecFromJson(SpecToJson(*spec)).ok());
  }
  return 0;
}
