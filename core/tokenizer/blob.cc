#include "core/tokenizer/blob.h"

#include <xxhash.h>

#include <limits>

#include "core/base/status.h"

namespace moed {
namespace {

constexpr std::string_view kMagic{"MOEDTOK\0", 8};
constexpr std::array<size_t, 5> kSectionsOfVersion = {6, 7, 9, 10, kBlobSections};  // [version - 1]
constexpr size_t kChecksumAt = 16;
constexpr size_t kChecksummedFrom = 24;
constexpr size_t kDirectoryAt = 32;
constexpr size_t kAlignment = 16;

bool IsVersion(uint32_t version) { return version >= 1 && version <= kSectionsOfVersion.size(); }
size_t SectionsOf(uint32_t version) { return kSectionsOfVersion[version - 1]; }
// The least version with all sections that are not empty.
template <class Sections>
uint32_t VersionOf(const Sections& sections) {
  size_t used = sections.size();
  while (used > 0 && sections[used - 1].empty()) --used;
  uint32_t version = 1;
  while (SectionsOf(version) < used) ++version;
  return version;
}
size_t HeaderBytes(uint32_t version) { return kDirectoryAt + SectionsOf(version) * 2 * sizeof(uint32_t); }

template <class T>
void Put(std::string& blob, size_t at, T value) {
  std::memcpy(blob.data() + at, &value, sizeof(value));
}

template <class T>
T Get(std::string_view blob, size_t at) {
  T value;
  std::memcpy(&value, blob.data() + at, sizeof(value));
  return value;
}

uint64_t Checksum(std::string_view blob) { return XXH3_64bits(blob.data() + kChecksummedFrom, blob.size() - kChecksummedFrom); }

}  // namespace

absl::StatusOr<std::string> SealBlob(const PerBlobSection<std::string>& sections) {
  const uint32_t version = VersionOf(sections);
  std::string blob(HeaderBytes(version), '\0');
  for (size_t i = 0; i < SectionsOf(version); ++i) {
    blob.resize((blob.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
    if (blob.size() + sections[i].size() > std::numeric_limits<uint32_t>::max()) {
      return InvalidArgument("the compiled tokenizer would be larger than 4 GiB");
    }
    Put(blob, kDirectoryAt + 8 * i, static_cast<uint32_t>(blob.size()));
    Put(blob, kDirectoryAt + 8 * i + 4, static_cast<uint32_t>(sections[i].size()));
    blob += sections[i];
  }
  std::memcpy(blob.data(), kMagic.data(), kMagic.size());
  Put(blob, 8, version);
  Put(blob, 12, static_cast<uint32_t>(SectionsOf(version)));
  Put(blob, 24, static_cast<uint64_t>(blob.size()));
  Put(blob, kChecksumAt, Checksum(blob));
  return blob;
}

absl::StatusOr<PerBlobSection<std::string_view>> OpenBlob(std::string_view blob) {
  if (blob.size() < HeaderBytes(1) || blob.substr(0, kMagic.size()) != kMagic) {
    return DataLoss("not a compiled tokenizer");
  }
  const auto version = Get<uint32_t>(blob, 8);
  if (!IsVersion(version)) {
    return DataLoss("compiled tokenizer of version ", version, "; this program reads versions 1 to ", kSectionsOfVersion.size(),
                    ": pack again");
  }
  if (blob.size() < HeaderBytes(version)) return DataLoss("compiled tokenizer: its directory is cut off");
  if (const auto bytes = Get<uint64_t>(blob, 24); bytes != blob.size()) {
    return DataLoss("compiled tokenizer says it has ", bytes, " bytes but has ", blob.size());
  }
  if (Get<uint64_t>(blob, kChecksumAt) != Checksum(blob)) return DataLoss("compiled tokenizer: checksum does not match");
  if (Get<uint32_t>(blob, 12) != SectionsOf(version)) return DataLoss("compiled tokenizer: wrong number of sections");
  PerBlobSection<std::string_view> sections;
  for (size_t i = 0; i < SectionsOf(version); ++i) {
    const auto offset = Get<uint32_t>(blob, kDirectoryAt + 8 * i), bytes = Get<uint32_t>(blob, kDirectoryAt + 8 * i + 4);
    if (offset > blob.size() || bytes > blob.size() - offset)
      return DataLoss("compiled tokenizer: section ", i, " is out of bounds");
    sections[i] = blob.substr(offset, bytes);
  }
  if (VersionOf(sections) != version) return DataLoss("compiled tokenizer: empty sections make version ", version);
  return sections;
}

}  // namespace moed
