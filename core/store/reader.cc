#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/store/awaited_reads.h"
#include "core/store/checksum.h"
#include "core/store/coded_chunks.h"
#include "core/store/damage.h"
#include "core/store/header.h"
#include "core/store/store.h"

namespace moed {
namespace {

constexpr size_t kScratchBytes = 1 << 20;
constexpr size_t kPieceBytes = 4 << 20;
constexpr size_t kNamedDamages = 1000;  // one a line

bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// In pieces, as many at once as the backend takes. The first error, once every piece has been answered.
absl::Status ReadThrough(ReadBackend& reads, uint64_t offset, std::span<std::byte> out) {
  AwaitedReads pieces(reads);
  absl::Status first_error;
  for (size_t begin = 0; begin < out.size(); begin += kPieceBytes) {
    pieces.Submit(offset + begin, out.subspan(begin, std::min(kPieceBytes, out.size() - begin)), first_error);
  }
  pieces.Wait();
  return first_error;
}

}  // namespace

const std::string& StoreReader::path() const { return file_->path(); }
uint64_t StoreReader::file_bytes() const { return file_->size(); }

absl::StatusOr<std::unique_ptr<StoreReader>> StoreReader::Open(const std::string& path, const StoreLimits& limits) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return InvalidArgument(path, " is a folder, not a store; this makes one of a Hugging Face folder: moed-pack ", path, " OUT");
  }
  MOED_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, OpenBuffered(path));
  return Open(std::shared_ptr<const RandomAccessFile>(std::move(file)), limits);
}

absl::StatusOr<std::unique_ptr<StoreReader>> StoreReader::Open(std::shared_ptr<const RandomAccessFile> file,
                                                               const StoreLimits& limits) {
  MOED_ASSIGN_OR_RETURN(StoreHeader header, ReadHeader(*file, limits.description_bytes));
  const size_t piece = header.layout.TokenizerPiece();
  const Piece tokenizer = header.layout.PieceAt(piece);
  if (tokenizer.bytes > limits.tokenizer_bytes) {
    return absl::OutOfRangeError(
        StrCat(file->path(), ": the tokenizer has ", tokenizer.bytes, " bytes, at most ", limits.tokenizer_bytes, " are read"));
  }
  auto reader = std::unique_ptr<StoreReader>(new StoreReader());
  reader->file_ = std::move(file);
  reader->description_ = std::move(header.description);
  reader->layout_ = std::move(header.layout);
  reader->checksums_ = std::move(header.checksums);
  reader->model_hash_ = header.model_hash;
  reader->description_.tokenizer.resize(tokenizer.bytes);
  const auto bytes = std::as_writable_bytes(std::span(reader->description_.tokenizer));
  MOED_RETURN_IF_ERROR(reader->file_->ReadAt(tokenizer.offset, bytes));
  MOED_RETURN_IF_ERROR(reader->CheckPiece(piece, Checksum(bytes)));
  return reader;
}

absl::Status StoreReader::CheckKey(const CachedKey& key) const {
  if (layout_.Contains(key)) return absl::OkStatus();
  return InvalidArgument("the store has no expert ", key.expert, " of layer ", key.layer.value(), " at precision ",
                         static_cast<int>(key.precision), ": its MoE layers are ",
                         JoinNames(description_.moe_layers, [](LayerId layer) { return layer.value(); }), " with ",
                         description_.experts_per_layer, " experts each at ", description_.precisions.size(), " precisions");
}

uint64_t StoreReader::RecordOffset(const CachedKey& key) const { return layout_.RecordOffset(key); }

uint64_t StoreReader::largest_stored_bytes(Precision precision) const {
  if (!coded()) return largest_expert_bytes(precision);
  uint64_t largest = 0;
  for (const LayerId layer : description_.moe_layers) {
    for (int expert = 0; expert < description_.experts_per_layer; ++expert) {
      largest = std::max(largest, stored_bytes({layer, expert, precision}));
    }
  }
  return largest;
}

uint64_t StoreReader::SegmentChecksum(const CachedKey& key, ExpertPart part) const {
  return checksums_[layout_.ExpertPiece(key, part)];
}

absl::Status StoreReader::VerifySegment(const CachedKey& key, ExpertPart part, std::span<const std::byte> segment) const {
  const size_t piece = layout_.ExpertPiece(key, part);
  const uint64_t expected_bytes = layout_.PlainBytes(piece);
  if (segment.size() != expected_bytes) {
    return DataLoss(path(), ": ", PieceName(piece), " has ", segment.size(), " bytes, expected ", expected_bytes);
  }
  return CheckPiece(piece, Checksum(segment));
}

absl::Status StoreReader::Decode(const CachedKey& key, size_t first, size_t end, std::span<std::byte> record,
                                 SegmentDecoder& decoder) const {
  if (!coded()) return absl::OkStatus();
  const ExpertLayout& layout = expert_layout(key);
  const Piece range = StoredRange(key, first, end);
  const uint64_t range_end = end == layout.segments.size() ? layout.record_bytes : layout.segments[end].offset;
  const auto read = record.first(range_end).last(range.bytes);
  for (size_t i = first; i < end; ++i) {
    const ExpertSegment& segment = layout.segments[i];
    const size_t piece = layout_.ExpertPiece(key, segment.part);
    const Piece place = layout_.PieceAt(piece);
    const auto coded = read.subspan(place.offset - range.offset, place.bytes);
    const auto plain = record.subspan(segment.offset, segment.bytes);
    if (coded.size() == plain.size()) {
      std::memmove(plain.data(), coded.data(), plain.size());
      continue;
    }
    const absl::Status decoded = decoder.Decode(segment.format, coded, plain);
    if (!decoded.ok()) return Damage(path(), ": ", PieceName(piece), " is damaged: it ", decoded.message());
  }
  return absl::OkStatus();
}

// The trunk's bytes from its beginning on: tensors by their checksums, padding between them.
class StoreReader::TrunkCheck {
 public:
  explicit TrunkCheck(const StoreReader& store) : store_(store) {}

  absl::Status Add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const uint64_t left = End() - done_;
      const auto some = bytes.first(std::min<uint64_t>(left, bytes.size()));
      MOED_RETURN_IF_ERROR(AddPart(some));
      bytes = bytes.subspan(some.size());
    }
    return absl::OkStatus();
  }

 private:
  std::span<const TensorInfo> tensors() const { return store_.description_.trunk; }
  bool in_padding() const { return tensor_ == tensors().size() || done_ < tensors()[tensor_].offset; }
  // Of what done_ lies in.
  uint64_t End() const {
    if (tensor_ == tensors().size()) return store_.description_.trunk_bytes;
    return tensors()[tensor_].offset + (in_padding() ? 0 : tensors()[tensor_].bytes);
  }

  absl::Status AddPart(std::span<const std::byte> bytes) {
    const bool padding = in_padding(), ends = done_ + bytes.size() == End();
    done_ += bytes.size();
    if (padding) {
      if (AllZero(bytes)) return absl::OkStatus();
      if (tensor_ == tensors().size()) return DataLoss(store_.path(), ": the padding behind the trunk is not zero");
      return DataLoss(store_.path(), ": the padding before ", store_.PieceName(store_.layout_.TensorPiece(tensor_)),
                      " is not zero");
    }
    sum_.Update(bytes);
    if (!ends) return absl::OkStatus();
    return store_.CheckPiece(store_.layout_.TensorPiece(tensor_++), std::exchange(sum_, ChecksumStream()).Value());
  }

  const StoreReader& store_;
  uint64_t done_ = 0;
  size_t tensor_ = 0;  // the next one to end
  ChecksumStream sum_;
};

absl::Status StoreReader::ReadTrunk(ReadBackend* reads, absl::FunctionRef<std::span<std::byte>(uint64_t)> place,
                                    absl::FunctionRef<absl::Status(uint64_t, std::span<const std::byte>)> take) const {
  TrunkCheck check(*this);
  for (uint64_t done = 0; done < description_.trunk_bytes;) {
    const std::span<std::byte> memory = place(done);
    const auto piece = memory.first(std::min<uint64_t>(memory.size(), description_.trunk_bytes - done));
    const uint64_t offset = layout_.trunk_offset() + done;
    MOED_RETURN_IF_ERROR(reads == nullptr ? file_->ReadAt(offset, piece) : ReadThrough(*reads, offset, piece));
    MOED_RETURN_IF_ERROR(check.Add(piece));
    MOED_RETURN_IF_ERROR(take(done, piece));
    done += piece.size();
  }
  return absl::OkStatus();
}

absl::StatusOr<const TensorInfo*> StoreReader::FindTensor(std::string_view name) const {
  for (const TensorInfo& tensor : description_.trunk) {
    if (tensor.name == name) return &tensor;
  }
  return NotFound(path(), " has no trunk tensor \"", name, "\"");
}

absl::Status StoreReader::ReadTensor(const TensorInfo& tensor, std::span<std::byte> out) const {
  const auto piece = static_cast<size_t>(&tensor - description_.trunk.data());
  MOED_CHECK(piece < description_.trunk.size() && out.size() == tensor.bytes);
  MOED_RETURN_IF_ERROR(file_->ReadAt(layout_.PieceAt(piece).offset, out));
  return CheckPiece(piece, Checksum(out));
}

std::string StoreReader::PieceName(size_t piece) const {
  if (piece < layout_.TokenizerPiece()) return StrCat("trunk tensor \"", description_.trunk[piece].name, "\"");
  if (piece == layout_.TokenizerPiece()) return "tokenizer";
  const auto [key, part] = layout_.ExpertAt(piece - layout_.TokenizerPiece() - 1);
  return StrCat("expert ", key.expert, " of layer ", key.layer.value(), " at precision ", static_cast<int>(key.precision), " (",
                FormatOf(expert_layout(key).Find(part)->format).name, "), ", PartName(part));
}

absl::Status StoreReader::CheckPiece(size_t piece, uint64_t checksum) const {
  if (checksum == checksums_[piece]) return absl::OkStatus();
  return Damage(path(), ": ", PieceName(piece), " is damaged: its checksum is ", absl::Hex(checksum, absl::kZeroPad16),
                ", expected ", absl::Hex(checksums_[piece], absl::kZeroPad16));
}

absl::StatusOr<uint64_t> StoreReader::ChecksumInFile(size_t piece, std::span<std::byte> scratch,
                                                     const std::function<absl::Status(uint64_t)>& advance) const {
  const Piece place = layout_.PieceAt(piece);
  ChecksumStream stream;
  for (uint64_t done = 0; done < place.bytes;) {
    const auto chunk = scratch.first(std::min<uint64_t>(scratch.size(), place.bytes - done));
    MOED_RETURN_IF_ERROR(file_->ReadAt(place.offset + done, chunk));
    stream.Update(chunk);
    done += chunk.size();
    MOED_RETURN_IF_ERROR(advance(place.offset + done));
  }
  return stream.Value();
}

// Chunk by chunk: a file may lie about how large a segment is in memory, not about how large it is itself.
absl::StatusOr<uint64_t> StoreReader::ChecksumDecoded(size_t piece, SegmentDecoder& decoder) const {
  const auto [key, part] = layout_.ExpertAt(piece - layout_.TokenizerPiece() - 1);
  const Piece place = layout_.PieceAt(piece);
  MOED_ASSIGN_OR_RETURN(const Buffer coded, Buffer::Allocate(RoundUp(place.bytes, kStoreAlignment)));
  MOED_RETURN_IF_ERROR(file_->ReadAt(place.offset, coded.span().first(place.bytes)));
  std::span<const std::byte> left = coded.span().first(place.bytes);
  const FormatId format = expert_layout(key).Find(part)->format;
  std::vector<std::byte> chunk(BytesOfChunks(format, layout_.PlainBytes(piece)));
  ChecksumStream stream;
  for (uint64_t done = 0; done < layout_.PlainBytes(piece); done += chunk.size()) {
    chunk.resize(std::min(chunk.size(), layout_.PlainBytes(piece) - done));
    const absl::StatusOr<size_t> bytes = CodedBytesOfFirst(format, left);
    const absl::Status decoded = bytes.ok() ? decoder.Decode(format, left.first(*bytes), chunk) : bytes.status();
    if (!decoded.ok()) return Damage(path(), ": ", PieceName(piece), " is damaged: it ", decoded.message());
    left = left.subspan(*bytes);
    stream.Update(chunk);
  }
  if (left.empty()) return stream.Value();
  return Damage(path(), ": ", PieceName(piece), " is damaged: ", left.size(), " of its bytes are left");
}

absl::Status StoreReader::VerifyAll(const std::function<bool(uint64_t, uint64_t)>& progress) const {
  MOED_ASSIGN_OR_RETURN(const Buffer scratch, Buffer::Allocate(kScratchBytes));
  const auto advance = [&](uint64_t done) {
    return progress(done, file_bytes()) ? absl::OkStatus()
                                        : absl::CancelledError(StrCat("verification of ", path(), " was ended"));
  };
  std::string named;
  size_t damaged = 0;
  const auto note = [&](const absl::Status& status) {
    if (!status.ok() && damaged++ < kNamedDamages) absl::StrAppend(&named, damaged > 1 ? "\n" : "", status.message());
  };
  SegmentDecoder decoder;
  uint64_t end = layout_.trunk_offset();  // the header was checked by Open
  for (size_t rank = 0; rank <= layout_.piece_count(); ++rank) {
    const bool last = rank == layout_.piece_count();
    const size_t piece = last ? rank : layout_.PieceOfRank(rank);
    const uint64_t next = last ? file_bytes() : layout_.PieceAt(piece).offset;
    const auto padding = scratch.span().first(next - end);
    MOED_RETURN_IF_ERROR(file_->ReadAt(end, padding));
    if (!AllZero(padding)) note(DataLoss(path(), ": the padding at byte ", end, " is not zero"));
    if (last) break;
    end = next + layout_.PieceAt(piece).bytes;
    const bool decodes = layout_.PlainBytes(piece) != layout_.PieceAt(piece).bytes;
    const absl::StatusOr<uint64_t> checksum =
        decodes ? ChecksumDecoded(piece, decoder) : ChecksumInFile(piece, scratch.span(), advance);
    if (!checksum.ok() && !(decodes && absl::IsDataLoss(checksum.status()))) return checksum.status();
    note(checksum.ok() ? CheckPiece(piece, *checksum) : checksum.status());
    if (decodes) MOED_RETURN_IF_ERROR(advance(end));
  }
  MOED_RETURN_IF_ERROR(advance(file_bytes()));
  if (damaged == 0) return absl::OkStatus();
  return damaged > kNamedDamages ? DataLoss(named, "\n", damaged - kNamedDamages, " more damaged places") : DataLoss(named);
}

}  // namespace moed
