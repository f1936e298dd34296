// The journal of moe-bench systems: what is accepted takes one more record and is read again.
#include "bench/systems/journal.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  const nlohmann::ordered_json run = {{"store", "a.moed"}};
  const std::string path = folder.Write("journal", fuzz::Text(data, size));
  auto journal = SystemsJournal::Open(path, run);
  if (!journal.ok()) return 0;
  const size_t records = journal->records().size();
  MOED_CHECK(journal->Add({{"quality", 1, "native", "auto", 9}, {{"kl", .5}}, ""}).ok());
  const auto again = SystemsJournal::Open(path, run);
  MOED_CHECK(again.ok() && again->records().size() == records + 1);
  return 0;
}
