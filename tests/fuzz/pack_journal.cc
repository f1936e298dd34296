// What of an unfinished store is on disk, and the losses that a planner measured: rows of three words, the third of which, a
// checksum, is made right.
#include "core/store/journal.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

namespace {

constexpr size_t kRowBytes = 24;  // core/store/journal.h

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  std::string rows(fuzz::Text(data, size));
  for (size_t at = 0; at + kRowBytes <= size; at += kRowBytes) {
    const std::string identity = at == 0 ? "" : rows.substr(8, 8);
    fuzz::PutAt(rows, at + 16, Checksum(identity + rows.substr(at, 16)));
  }
  const auto journal = Journal::Read(folder.Write("journal", rows));
  MOED_CHECK(journal.ok());
  if (journal->has_value()) MOED_CHECK((*journal)->entries.size() == size / kRowBytes - 1);
  return 0;
}
