// The envelope of a compiled tokenizer: magic, version, checksum, then sections, each at a multiple of 16 bytes.
// All numbers little-endian:
//   0  8 bytes  "MOEDTOK\0"
//   8  u32      version, which says how many sections there are: the least that holds all that are not empty
//  12  u32      number of sections
//  16  u64      XXH3-64 of everything from byte 24 on
//  24  u64      length of the blob in bytes
//  32  sections x {u32 offset, u32 bytes}
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moed {

static_assert(std::endian::native == std::endian::little, "compiled tokenizers are read in place");

enum class BlobSection : uint32_t {
  kSpec,          // TokenizerSpec (spec.h)
  kPieceOffsets,  // u32 x (pieces + 1) into kPieceBytes
  kPieceBytes,
  kPieceSlots,    // u32 ids: open addressing by the bytes of a piece
  kMergeSlots,    // {u32 left, u32 right, u32 rank}: open addressing by the pair
  kMergeResults,  // u32 id x merges, by rank
  // Version 1 ends here. The others are those of ChatSettings.
  kChatTemplate,
  // Version 2 ends here.
  kNamedTokens,
  kSamplingDefaults,
  // Version 3 ends here.
  kScores,  // f64 x pieces, of a unigram model; empty: the model is BPE
  // Version 4 ends here.
  kWordTokens,    // u32 x words, the last pieces: the token of each (JapaneseWords); empty: pieces are tokens
  kReplacements,  // of JapaneseWords
};
inline constexpr size_t kBlobSections = 12;

template <class T>
using PerBlobSection = std::array<T, kBlobSections>;

absl::StatusOr<std::string> SealBlob(const PerBlobSection<std::string>& sections);
// Views into `blob`. DATA_LOSS unless magic, version, length, checksum and every bound are right.
absl::StatusOr<PerBlobSection<std::string_view>> OpenBlob(std::string_view blob);

// A section that is an array of u32, read in place whatever its alignment.
class U32Array {
 public:
  U32Array() = default;
  explicit U32Array(std::string_view bytes) : bytes_(bytes) {}
  size_t size() const { return bytes_.size() / sizeof(uint32_t); }
  uint32_t operator[](size_t i) const {
    uint32_t value;
    std::memcpy(&value, bytes_.data() + i * sizeof(value), sizeof(value));
    return value;
  }

 private:
  std::string_view bytes_;
};

// Small records, field by field.
class FieldWriter {
 public:
  void U8(uint8_t value) { bytes_ += static_cast<char>(value); }
  void U32(uint32_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void String(std::string_view value) {
    U32(static_cast<uint32_t>(value.size()));
    bytes_ += value;
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// After the first field that does not fit, every field is zero or empty and ok() is false.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}
  uint8_t U8() { return Fixed<uint8_t>(); }
  uint32_t U32() { return Fixed<uint32_t>(); }
  std::string String() { return std::string(Bytes(U32())); }
  // A count of records that take at least `record_bytes` each.
  uint32_t Count(size_t record_bytes) {
    const uint32_t count = U32();
    if (count > rest_.size() / record_bytes) Fail();
    return ok_ ? count : 0;
  }
  void Fail() {
    ok_ = false;
    rest_ = {};
  }
  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view Bytes(size_t bytes) {
    if (bytes > rest_.size()) {
      Fail();
      return {};
    }
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  template <class T>
  T Fixed() {
    T value{};
    if (const std::string_view bytes = Bytes(sizeof(T)); ok_) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace moed
