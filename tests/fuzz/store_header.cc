// A store's fixed header and description. Lengths and checksum are made right; behind them lie as many zeros as the header says,
// up to a bound. Every record of what is accepted lies inside the file.
#include <algorithm>

#include "core/store/header.h"
#include "core/store/store.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

namespace {

constexpr size_t kFileBytesAt = 16, kDescriptionBytesAt = 24, kChecksumAt = 120;  // docs/store-format.md
constexpr uint64_t kLongest = 1 << 20;

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(fuzz::Text(data, size));
  if (size >= kHeaderBytes) {
    fuzz::PutAt<uint64_t>(file, kDescriptionBytesAt, size - kHeaderBytes);
    ChecksumStream checksum;
    const auto bytes = std::as_bytes(std::span(file));
    checksum.Update(bytes.first(kChecksumAt));
    checksum.Update(bytes.subspan(kHeaderBytes));
    const uint64_t file_bytes = fuzz::GetAt<uint64_t>(file, kFileBytesAt);
    fuzz::PutAt(file, kChecksumAt, checksum.Value());
    file.resize(std::clamp<uint64_t>(file_bytes, size, std::max<uint64_t>(size, kLongest)));
  }
  const auto store = StoreReader::Open(MakeMemoryFile("fuzz", std::move(file)));
  if (!store.ok()) return 0;
  const StoreDescription& description = (*store)->description();
  for (const LayerId layer : description.moe_layers) {
    for (size_t p = 0; p < description.precisions.size(); ++p) {
      const CachedKey last{layer, description.experts_per_layer - 1, static_cast<Precision>(p)};
      if (!(*store)->CheckKey(last).ok()) continue;
      MOED_CHECK((*store)->stored_bytes(last) <= (*store)->expert_bytes(last));
      MOED_CHECK((*store)->RecordOffset(last) + (*store)->stored_bytes(last) <= (*store)->file_bytes());
    }
  }
  (void)(*store)->VerifyAll([](uint64_t, uint64_t) { return true; });
  return 0;
}
