// A packed model on disk: header, trunk, expert records, tokenizer. Byte by byte in docs/store-format.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/store/coding.h"
#include "core/store/description.h"
#include "core/store/layout.h"

namespace moed {

class RandomAccessFile;
class ReadBackend;

// An opened, validated store: header checked against its checksum, every offset inside the file. Immutable, thread-safe.
class StoreReader {
 public:
  // DATA_LOSS for a truncated or corrupted file, FAILED_PRECONDITION for an unfinished pack or another version, each saying what
  // was expected and found; all of these are damage (damage.h), which no error of opening or reading is. RESOURCE_EXHAUSTED
  // beyond `limits`: what is larger is not read.
  static absl::StatusOr<std::unique_ptr<StoreReader>> Open(const std::string& path, const StoreLimits& limits = {});
  static absl::StatusOr<std::unique_ptr<StoreReader>> Open(std::shared_ptr<const RandomAccessFile> file,
                                                           const StoreLimits& limits = {});

  const StoreDescription& description() const { return description_; }
  const std::string& path() const;
  uint64_t file_bytes() const;
  // Key valid. Of its record.
  const ExpertLayout& expert_layout(const CachedKey& key) const {
    return description_.precisions[key.precision].layers[layout_.PositionOf(key.layer)];
  }
  uint64_t expert_bytes(const CachedKey& key) const { return expert_layout(key).record_bytes; }
  uint64_t largest_expert_bytes(Precision precision) const { return LargestRecordBytes(description_.precisions[precision]); }
  // What is read of the largest record in the file.
  uint64_t largest_stored_bytes(Precision precision) const;
  // Sum over all experts at the reference precision.
  uint64_t all_expert_bytes() const { return AllRecordBytes(description_, kReferencePrecision); }
  const FileLayout& layout() const { return layout_; }
  uint64_t model_hash() const { return model_hash_; }  // XXH3-64 of spec, shapes, trunk checksums and record checksums

  // INVALID_ARGUMENT for a key outside the store.
  absl::Status CheckKey(const CachedKey& key) const;
  // Key valid. Offset of the record in the file, multiple of 4096.
  uint64_t RecordOffset(const CachedKey& key) const;
  // Whether records are coded (coding.h): what is read of them has to be decoded.
  bool coded() const { return layout_.coded(); }
  // Key valid. Where its segments from `first` to before `end` are in the file: whole pages, never more than in memory.
  Piece StoredRange(const CachedKey& key, size_t first, size_t end) const { return layout_.RangeOf(key, first, end); }
  // Of the record, whole pages in the file.
  uint64_t stored_bytes(const CachedKey& key) const { return StoredRange(key, 0, expert_layout(key).segments.size()).bytes; }
  // `record` has what was read of these segments (StoredRange) at the end of their place in it: makes of it what they are in
  // memory. DATA_LOSS naming the segment that cannot be decoded; whether it is the right one its checksum says.
  absl::Status Decode(const CachedKey& key, size_t first, size_t end, std::span<std::byte> record, SegmentDecoder& decoder) const;
  uint64_t SegmentChecksum(const CachedKey& key, ExpertPart part) const;  // XXH3-64 over the segment's bytes without padding
  // DATA_LOSS naming layer, expert, precision and part when `segment` (its bytes) does not have the stored checksum.
  absl::Status VerifySegment(const CachedKey& key, ExpertPart part, std::span<const std::byte> segment) const;

  // Reads the trunk whole (trunk_bytes) and checks it, in pieces: each is read into what `place` gives for its offset in the
  // trunk, and given to `take` with that offset. Damage may be told after it was taken. Through `reads`, which has this store's
  // file open and wants whole pages of memory; through the store's own file when it is null.
  absl::Status ReadTrunk(ReadBackend* reads, absl::FunctionRef<std::span<std::byte>(uint64_t)> place,
                         absl::FunctionRef<absl::Status(uint64_t, std::span<const std::byte>)> take) const;
  // NOT_FOUND naming the tensor.
  absl::StatusOr<const TensorInfo*> FindTensor(std::string_view name) const;
  // `tensor` of FindTensor, `out` as many bytes as it has. DATA_LOSS: damaged.
  absl::Status ReadTensor(const TensorInfo& tensor, std::span<std::byte> out) const;
  // The tokenizer's blob is dropped from description() once it was taken, so that it is not held twice.
  std::string TakeTokenizer() { return std::move(description_.tokenizer); }

  // Reads the whole file and checks every checksum. `progress(done_bytes, total_bytes)`; returning false ends it with CANCELLED.
  absl::Status VerifyAll(const std::function<bool(uint64_t, uint64_t)>& progress) const;

 private:
  StoreReader() = default;
  // "trunk tensor \"x\"", "tokenizer", "expert 3 of layer 1 at precision 0 (q8), up".
  std::string PieceName(size_t piece) const;
  absl::Status CheckPiece(size_t piece, uint64_t checksum) const;
  class TrunkCheck;
  absl::StatusOr<uint64_t> ChecksumDecoded(size_t piece, SegmentDecoder& decoder) const;
  absl::StatusOr<uint64_t> ChecksumInFile(size_t piece, std::span<std::byte> scratch,
                                          const std::function<absl::Status(uint64_t)>& advance) const;

  std::shared_ptr<const RandomAccessFile> file_;
  StoreDescription description_;
  FileLayout layout_;
  std::vector<uint64_t> checksums_;  // by piece of the layout
  uint64_t model_hash_ = 0;
};

}  // namespace moed
