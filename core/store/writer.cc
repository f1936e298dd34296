#include "core/store/writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/store/coding.h"
#include "core/store/file_lock.h"
#include "core/store/file_write.h"
#include "core/store/header.h"

namespace moed {

StoreWriter::StoreWriter(std::string path, StoreDescription description, FileLayout layout, const StoreWriterOptions& options)
    : path_(std::move(path)),
      partial_path_(path_ + ".partial"),
      journal_path_(partial_path_ + ".journal"),
      description_(std::move(description)),
      layout_(std::move(layout)),
      options_(options),
      identity_(Identity()),
      finished_(layout_.piece_count(), false),
      checksums_(layout_.piece_count(), 0),
      next_rank_(layout_.TokenizerPiece() + 1),
      last_sync_nanos_(options.clock->NowNanos()) {}

StoreWriter::~StoreWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::unique_ptr<StoreWriter>> StoreWriter::Open(const std::string& path, const StoreDescription& description,
                                                               const StoreWriterOptions& options) {
  MOED_ASSIGN_OR_RETURN(FileLayout layout, FileLayout::Plan(description, description.tokenizer.size()));
  auto writer = std::unique_ptr<StoreWriter>(new StoreWriter(path, description, std::move(layout), options));
  MOED_RETURN_IF_ERROR(writer->Lock());
  MOED_RETURN_IF_ERROR(writer->ResumeOrStart());
  return writer;
}

absl::Status StoreWriter::Lock() {
  const absl::StatusOr<int> fd = OpenLocked(partial_path_);
  if (absl::IsUnavailable(fd.status())) return FailedPrecondition("another process is writing ", partial_path_);
  MOED_RETURN_IF_ERROR(fd.status());
  fd_ = *fd;
  return absl::OkStatus();
}

uint64_t StoreWriter::Identity() const {
  std::string inputs = EncodeHeader(description_, layout_, std::vector<uint64_t>(layout_.piece_count(), 0));
  inputs += StrCat(options_.identity, ":");
  inputs += description_.tokenizer;
  return Checksum(inputs);
}

absl::StatusOr<std::vector<JournalEntry>> StoreWriter::TakeUp() {
  struct stat stat_buffer;
  if (fstat(fd_, &stat_buffer) != 0) return ErrnoError(errno, "cannot examine ", partial_path_);
  std::vector<JournalEntry> kept;
  if (stat_buffer.st_size == 0) return kept;  // just created
  MOED_ASSIGN_OR_RETURN(const std::optional<JournalContents> journal, Journal::Read(journal_path_));
  start_ = Start::kRestarted;
  const auto found_bytes = static_cast<uint64_t>(stat_buffer.st_size);
  // Of coded records one that was about to be finished is shorter already.
  const bool right_size = layout_.coded() ? found_bytes >= layout_.records_offset() : found_bytes == layout_.file_bytes();
  if (!journal || journal->identity != identity_ || !right_size) return kept;
  start_ = Start::kResumed;
  if (layout_.coded()) return TakeUpCoded(journal->entries, found_bytes);
  for (const JournalEntry& entry : journal->entries) {
    if (entry.piece < layout_.piece_count()) kept.push_back(entry);
  }
  return kept;
}

absl::Status StoreWriter::ResumeOrStart() {
  MOED_ASSIGN_OR_RETURN(const std::vector<JournalEntry> kept, TakeUp());
  if (start_ != Start::kResumed) MOED_RETURN_IF_ERROR(StartClean());
  for (const JournalEntry& entry : kept) {
    if (entry.piece >= layout_.piece_count()) continue;
    finished_[entry.piece] = true;
    checksums_[entry.piece] = entry.checksum;
    resumed_bytes_ += layout_.PlainBytes(entry.piece);
  }
  MOED_ASSIGN_OR_RETURN(Journal journal, Journal::Create(journal_path_, {identity_, kept}));
  journal_ = std::make_unique<Journal>(std::move(journal));
  if (finished_[layout_.TokenizerPiece()]) return absl::OkStatus();
  if (!description_.tokenizer.empty()) {
    return Append(layout_.TokenizerPiece(), std::as_bytes(std::span(std::as_const(description_.tokenizer))));
  }
  finished_[layout_.TokenizerPiece()] = true;
  checksums_[layout_.TokenizerPiece()] = Checksum(std::string_view());
  return absl::OkStatus();
}

// Of each coded segment two entries: number of pieces + piece with its bytes in the file, then the piece's own. What lies behind
// the last of those that follow each other is cut off, so that padding is zero.
absl::StatusOr<std::vector<JournalEntry>> StoreWriter::TakeUpCoded(const std::vector<JournalEntry>& entries,
                                                                   uint64_t found_bytes) {
  absl::flat_hash_map<uint64_t, uint64_t> journalled;
  for (const JournalEntry& entry : entries) journalled[entry.piece] = entry.checksum;
  std::vector<JournalEntry> kept;
  const auto keep = [&](size_t piece) {
    if (const auto found = journalled.find(piece); found != journalled.end()) kept.push_back({piece, found->second});
  };
  for (size_t piece = 0; piece <= layout_.TokenizerPiece(); ++piece) keep(piece);
  uint64_t end = layout_.records_offset();
  for (; next_rank_ < layout_.piece_count(); ++next_rank_) {
    const size_t piece = layout_.PieceOfRank(next_rank_);
    const auto bytes = journalled.find(layout_.piece_count() + piece);
    if (bytes == journalled.end() || !journalled.contains(piece)) break;
    if (bytes->second < 1 || bytes->second > layout_.PlainBytes(piece)) break;
    if (bytes->second > found_bytes - std::min(end, found_bytes)) break;
    layout_.PlaceCoded(piece, bytes->second);
    end = RoundUp(end + bytes->second, kStoreAlignment);
    keep(layout_.piece_count() + piece);
    keep(piece);
  }
  if (ftruncate(fd_, static_cast<off_t>(end)) != 0) return WriteError(errno, "truncate", partial_path_);
  MOED_RETURN_IF_ERROR(Reserve(end));
  return kept;
}

absl::Status StoreWriter::StartClean() {
  // The old journal goes before the bytes that it vouches for.
  if (unlink(journal_path_.c_str()) != 0 && errno != ENOENT) return WriteError(errno, "remove", journal_path_);
  MOED_RETURN_IF_ERROR(SyncFolderOf(journal_path_));
  if (ftruncate(fd_, 0) != 0) return WriteError(errno, "truncate", partial_path_);
  const absl::Status reserved = Reserve(0);
  if (!reserved.ok()) unlink(partial_path_.c_str());  // nothing is in it
  return reserved;
}

absl::Status StoreWriter::Reserve(uint64_t end) {
  const auto bytes = static_cast<off_t>(layout_.file_bytes());
  int error_number;
  do {
    error_number = fallocate(fd_, 0, 0, bytes) == 0 ? 0 : errno;
  } while (error_number == EINTR);
  if (error_number == 0) return absl::OkStatus();
  if (error_number == EOPNOTSUPP) {  // a file system that cannot reserve: a sparse file, and a full disk shows at a write
    if (ftruncate(fd_, bytes) == 0) return absl::OkStatus();
    return WriteError(errno, "extend", partial_path_);
  }
  const absl::Status status = WriteError(error_number, "reserve space for", partial_path_);
  // Gives back what was reserved.
  const std::string kept = ftruncate(fd_, static_cast<off_t>(end)) == 0 ? "" : ", and what was reserved stays taken";
  return absl::Status(status.code(), StrCat(status.message(), " (", layout_.file_bytes(), " bytes are needed)", kept));
}

absl::Status StoreWriter::Append(size_t piece, std::span<const std::byte> bytes) {
  MOED_CHECK(!finished_[piece]);
  const uint64_t whole = layout_.PlainBytes(piece);
  OpenPiece& open = open_[piece];
  MOED_CHECK(bytes.size() <= whole - open.written);
  if (IsCoded(piece)) {
    open.plain.insert(open.plain.end(), bytes.begin(), bytes.end());
  } else {
    MOED_RETURN_IF_ERROR(Write(layout_.PieceAt(piece).offset + open.written, bytes));
  }
  open.checksum.Update(bytes);
  open.written += bytes.size();
  if (open.written == whole && IsCoded(piece)) {
    const auto [key, part] = layout_.ExpertAt(piece - layout_.TokenizerPiece() - 1);
    const ExpertLayout& record = description_.precisions[key.precision].layers[layout_.PositionOf(key.layer)];
    std::vector<std::byte> coded = EncodeSegment(record.Find(part)->format, open.plain, options_.least_coding_gain);
    waiting_[layout_.RankOf(piece)] = {coded.empty() ? std::move(open.plain) : std::move(coded), open.checksum.Value()};
    open_.erase(piece);
    MOED_RETURN_IF_ERROR(WriteCoded());
  } else if (open.written == whole) {
    Finished(piece, open.checksum.Value());
    open_.erase(piece);
  }
  const double since_sync = SecondsBetween(last_sync_nanos_, options_.clock->NowNanos());
  if (unsynced_bytes_ < options_.sync_bytes && since_sync < options_.sync_seconds) return absl::OkStatus();
  return Flush();
}

absl::Status StoreWriter::Write(uint64_t offset, std::span<const std::byte> bytes) {
  MOED_RETURN_IF_ERROR(WriteAt(fd_, partial_path_, offset, bytes));
  // The disk begins now, so that the next sync has little to wait for. Whether it can is of no importance.
  (void)sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes.size()), SYNC_FILE_RANGE_WRITE);
  unsynced_bytes_ += bytes.size();
  return absl::OkStatus();
}

void StoreWriter::Finished(size_t piece, uint64_t checksum) {
  finished_[piece] = true;
  checksums_[piece] = checksum;
  if (IsCoded(piece)) unsynced_.push_back({layout_.piece_count() + piece, layout_.PieceAt(piece).bytes});
  unsynced_.push_back({piece, checksum});
}

absl::Status StoreWriter::WriteCoded() {
  for (; !waiting_.empty() && waiting_.begin()->first == next_rank_; ++next_rank_) {
    const WaitingSegment& segment = waiting_.begin()->second;
    const size_t piece = layout_.PieceOfRank(next_rank_);
    layout_.PlaceCoded(piece, segment.bytes.size());
    MOED_RETURN_IF_ERROR(Write(layout_.PieceAt(piece).offset, segment.bytes));
    Finished(piece, segment.checksum);
    waiting_.erase(waiting_.begin());
  }
  return absl::OkStatus();
}

absl::Status StoreWriter::ReadBack(const CachedKey& key, ExpertPart part, std::span<std::byte> out) const {
  const size_t piece = layout_.ExpertPiece(key, part);
  const Piece place = layout_.PieceAt(piece);
  MOED_CHECK(finished_[piece] && out.size() == layout_.PlainBytes(piece));
  std::vector<std::byte> coded(place.bytes == out.size() ? 0 : place.bytes);
  const std::span<std::byte> read = coded.empty() ? out : std::span(coded);
  for (size_t done = 0; done < read.size();) {
    const ssize_t count = pread(fd_, read.data() + done, read.size() - done, static_cast<off_t>(place.offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError(errno, "cannot read ", partial_path_);
    if (count == 0) return DataLoss(partial_path_, " ends at byte ", place.offset + done);
    done += static_cast<size_t>(count);
  }
  const FormatId format = description_.precisions[key.precision].layers[layout_.PositionOf(key.layer)].Find(part)->format;
  const bool decoded = coded.empty() || SegmentDecoder().Decode(format, coded, out).ok();
  if (decoded && Checksum(out) == checksums_[piece]) return absl::OkStatus();
  return DataLoss(partial_path_, ": what was written at byte ", place.offset, " reads back as something else");
}

absl::Status StoreWriter::Flush() {
  MOED_RETURN_IF_ERROR(SyncData(fd_, partial_path_));
  if (!unsynced_.empty()) MOED_RETURN_IF_ERROR(journal_->Append(unsynced_));
  unsynced_.clear();
  unsynced_bytes_ = 0;
  last_sync_nanos_ = options_.clock->NowNanos();
  return absl::OkStatus();
}

// Now that all sizes are known.
absl::Status StoreWriter::EndCoded() {
  const size_t first = layout_.TokenizerPiece() + 1;
  for (size_t piece = first; piece < layout_.piece_count(); ++piece) {
    description_.coded_bytes[piece - first] = layout_.PieceAt(piece).bytes;
  }
  MOED_ASSIGN_OR_RETURN(layout_, FileLayout::Plan(description_, description_.tokenizer.size()));
  if (ftruncate(fd_, static_cast<off_t>(layout_.file_bytes())) == 0) return absl::OkStatus();
  return WriteError(errno, "truncate", partial_path_);
}

absl::Status StoreWriter::Finish() {
  MOED_CHECK(std::find(finished_.begin(), finished_.end(), false) == finished_.end());
  MOED_RETURN_IF_ERROR(Flush());
  if (layout_.coded()) MOED_RETURN_IF_ERROR(EndCoded());
  const std::string header = EncodeHeader(description_, layout_, checksums_);
  MOED_RETURN_IF_ERROR(WriteAt(fd_, partial_path_, 0, std::as_bytes(std::span(header))));
  if (fsync(fd_) != 0) return WriteError(errno, "sync", partial_path_);
  if (rename(partial_path_.c_str(), path_.c_str()) != 0) return WriteError(errno, "rename", partial_path_);
  MOED_RETURN_IF_ERROR(SyncFolderOf(path_));
  if (unlink(journal_path_.c_str()) != 0) return WriteError(errno, "remove", journal_path_);
  return absl::OkStatus();
}

absl::Status StoreWriter::Discard() {
  if (unlink(journal_path_.c_str()) != 0) return WriteError(errno, "remove", journal_path_);
  if (unlink(partial_path_.c_str()) != 0) return WriteError(errno, "remove", partial_path_);
  return absl::OkStatus();
}

}  // namespace moed
