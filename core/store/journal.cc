#include "core/store/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "core/base/status.h"
#include "core/io/file.h"
#include "core/store/checksum.h"
#include "core/store/file_write.h"

namespace moed {
namespace {

constexpr uint64_t kMagic = 0x4c4e524a44454f4d;  // "MOEDJRNL"
constexpr size_t kRowBytes = 24;

// Header and entries are rows of three words, the third being a checksum.
struct Row {
  uint64_t words[3];
};
static_assert(sizeof(Row) == kRowBytes);

Row HeaderRow(uint64_t identity) {
  Row row{{kMagic, identity, 0}};
  row.words[2] = Checksum(std::as_bytes(std::span(row.words, 2)));
  return row;
}

Row EntryRow(uint64_t identity, const JournalEntry& entry) {
  const uint64_t hashed[3] = {identity, entry.piece, entry.checksum};
  return {{entry.piece, entry.checksum, Checksum(std::as_bytes(std::span(hashed)))}};
}

bool Same(const Row& a, const Row& b) { return std::memcmp(&a, &b, kRowBytes) == 0; }

}  // namespace

absl::StatusOr<std::optional<JournalContents>> Journal::Read(const std::string& path) {
  if (IsAbsent(path)) return std::nullopt;
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, OpenBuffered(path));
  std::vector<Row> rows(file->size() / kRowBytes);
  MOED_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(rows))));
  if (rows.empty() || !Same(rows[0], HeaderRow(rows[0].words[1]))) return std::nullopt;
  JournalContents contents{rows[0].words[1], {}};
  for (size_t i = 1; i < rows.size(); ++i) {
    const JournalEntry entry{rows[i].words[0], rows[i].words[1]};
    if (!Same(rows[i], EntryRow(contents.identity, entry))) break;
    contents.entries.push_back(entry);
  }
  return contents;
}

absl::StatusOr<Journal> Journal::Create(const std::string& path, const JournalContents& contents) {
  // A new file under a name of its own, so that a kill leaves either the old journal or the new one.
  const std::string fresh = path + ".new";
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return WriteError(errno, "create", fresh);
  Journal journal(fresh, fd, contents.identity);
  const Row header = HeaderRow(contents.identity);
  MOED_RETURN_IF_ERROR(WriteAt(fd, fresh, 0, std::as_bytes(std::span(&header, 1))));
  MOED_RETURN_IF_ERROR(journal.Append(contents.entries));
  if (rename(fresh.c_str(), path.c_str()) != 0) return WriteError(errno, "rename", fresh);
  journal.path_ = path;
  MOED_RETURN_IF_ERROR(SyncFolderOf(path));
  return journal;
}

Journal::Journal(Journal&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), identity_(other.identity_) {}

Journal::~Journal() {
  if (fd_ >= 0) close(fd_);
}

absl::Status Journal::Append(const std::vector<JournalEntry>& entries) {
  std::vector<Row> rows;
  rows.reserve(entries.size());
  for (const JournalEntry& entry : entries) rows.push_back(EntryRow(identity_, entry));
  // O_APPEND: the offset is ignored.
  MOED_RETURN_IF_ERROR(WriteAt(fd_, path_, 0, std::as_bytes(std::span(rows))));
  return SyncData(fd_, path_);
}

}  // namespace moed
