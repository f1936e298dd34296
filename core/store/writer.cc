#include "core/store/writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
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
      finished_(layout_.piece_count(), false),
      checksums_(layout_.piece_count(), 0),
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
  fd_ = open(partial_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) return WriteError(errno, "create", partial_path_);
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return FailedPrecondition("another process is writing ", partial_path_);
    return ErrnoError(errno, "cannot lock ", partial_path_);
  }
  // Another writer may have finished between open and lock: then this descriptor is the finished store, not to be touched.
  struct stat locked, named;
  if (fstat(fd_, &locked) == 0 && stat(partial_path_.c_str(), &named) == 0 && locked.st_ino == named.st_ino)
    return absl::OkStatus();
  return FailedPrecondition("another process was writing ", partial_path_, " and has just finished");
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
  if (!journal || journal->identity != Identity() || static_cast<uint64_t>(stat_buffer.st_size) != layout_.file_bytes())
    return kept;
  start_ = Start::kResumed;
  for (const JournalEntry& entry : journal->entries) {
    if (entry.piece < layout_.piece_count()) kept.push_back(entry);
  }
  return kept;
}

absl::Status StoreWriter::ResumeOrStart() {
  MOED_ASSIGN_OR_RETURN(const std::vector<JournalEntry> kept, TakeUp());
  if (start_ != Start::kResumed) MOED_RETURN_IF_ERROR(StartClean());
  for (const JournalEntry& entry : kept) {
    finished_[entry.piece] = true;
    checksums_[entry.piece] = entry.checksum;
    resumed_bytes_ += layout_.PieceAt(entry.piece).bytes;
  }
  MOED_ASSIGN_OR_RETURN(Journal journal, Journal::Create(journal_path_, {Identity(), kept}));
  journal_ = std::make_unique<Journal>(std::move(journal));
  if (finished_[layout_.TokenizerPiece()]) return absl::OkStatus();
  if (!description_.tokenizer.empty()) {
    return Append(layout_.TokenizerPiece(), std::as_bytes(std::span(std::as_const(description_.tokenizer))));
  }
  finished_[layout_.TokenizerPiece()] = true;
  checksums_[layout_.TokenizerPiece()] = Checksum(std::string_view());
  return absl::OkStatus();
}

absl::Status StoreWriter::StartClean() {
  // The old journal goes before the bytes that it vouches for.
  if (unlink(journal_path_.c_str()) != 0 && errno != ENOENT) return WriteError(errno, "remove", journal_path_);
  MOED_RETURN_IF_ERROR(SyncFolderOf(journal_path_));
  if (ftruncate(fd_, 0) != 0) return WriteError(errno, "truncate", partial_path_);
  return Reserve();
}

absl::Status StoreWriter::Reserve() {
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
  absl::Status status = WriteError(error_number, "reserve space for", partial_path_);
  // Nothing worth keeping yet: give back what was reserved.
  unlink(partial_path_.c_str());
  return absl::Status(status.code(), StrCat(status.message(), " (", layout_.file_bytes(), " bytes are needed)"));
}

absl::Status StoreWriter::Append(size_t piece, std::span<const std::byte> bytes) {
  MOED_CHECK(!finished_[piece]);
  const Piece place = layout_.PieceAt(piece);
  OpenPiece& open = open_[piece];
  MOED_CHECK(bytes.size() <= place.bytes - open.written);
  MOED_RETURN_IF_ERROR(WriteAt(fd_, partial_path_, place.offset + open.written, bytes));
  // The disk begins now, so that the next sync has little to wait for. Whether it can is of no importance.
  (void)sync_file_range(fd_, static_cast<off_t>(place.offset + open.written), static_cast<off_t>(bytes.size()),
                        SYNC_FILE_RANGE_WRITE);
  open.checksum.Update(bytes);
  open.written += bytes.size();
  unsynced_bytes_ += bytes.size();
  if (open.written == place.bytes) {
    finished_[piece] = true;
    checksums_[piece] = open.checksum.Value();
    unsynced_.push_back({piece, checksums_[piece]});
    open_.erase(piece);
  }
  const double since_sync = SecondsBetween(last_sync_nanos_, options_.clock->NowNanos());
  if (unsynced_bytes_ < options_.sync_bytes && since_sync < options_.sync_seconds) return absl::OkStatus();
  return Flush();
}

absl::Status StoreWriter::ReadBack(const CachedKey& key, ExpertPart part, std::span<std::byte> out) const {
  const size_t piece = layout_.ExpertPiece(key, part);
  const Piece place = layout_.PieceAt(piece);
  MOED_CHECK(finished_[piece] && out.size() == place.bytes);
  for (size_t done = 0; done < out.size();) {
    const ssize_t count = pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(place.offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError(errno, "cannot read ", partial_path_);
    if (count == 0) return DataLoss(partial_path_, " ends at byte ", place.offset + done);
    done += static_cast<size_t>(count);
  }
  if (Checksum(out) == checksums_[piece]) return absl::OkStatus();
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

absl::Status StoreWriter::Finish() {
  MOED_CHECK(std::find(finished_.begin(), finished_.end(), false) == finished_.end());
  MOED_RETURN_IF_ERROR(Flush());
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
