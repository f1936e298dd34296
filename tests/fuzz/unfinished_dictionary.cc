// A dictionary that was not counted to its end: its description. The table beside it is whole.
#include "tests/fuzz/foreign_bytes.h"
#include "tools/plan/dictionary_unfinished.h"

using namespace moed;

namespace {

constexpr uint64_t kIdentity = 7;
constexpr int kLayers = 2, kExperts = 4;

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  static const UnfinishedDictionary unfinished(folder.path() + "/d", kIdentity);
  static const bool table_written =
      ActivationPaths(kLayers, kExperts, 2, 0).Write(folder.path() + "/d.unfinished-2", kIdentity).ok();
  MOED_CHECK(table_written);
  folder.Write("d.unfinished", fuzz::Text(data, size));
  const auto state = unfinished.Read(kLayers, kExperts);
  if (state.ok()) MOED_CHECK(state->windows == 2 && state->paths != nullptr);
  return 0;
}
