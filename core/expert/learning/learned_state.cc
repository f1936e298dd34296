#include "core/expert/learning/learned_state.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/io/file.h"
#include "core/store/checksum.h"
#include "core/store/file_write.h"

namespace moed {
namespace {

// The file: magic, model hash, length and text of the parts' names; for every array or table its bytes and a 64-bit length before
// them, the rows of a table one after the other; at the end XXH3-64 of all of it. Files of versions 1 to 3 had tables of
// other kinds.
constexpr std::array<char, 8> kMagic = {'M', 'O', 'E', 'D', 'L', 'R', 'N', '4'};
constexpr uint64_t kLongestNames = 4096;
constexpr size_t kPieceBytes = 1 << 16;  // that are read or written at once

bool IsOfEarlierVersion(std::array<char, 8> magic) {
  const char version = std::exchange(magic.back(), kMagic.back());
  return magic == kMagic && version >= '1' && version < kMagic.back();
}

std::span<const std::byte> BytesOf(const auto& value) { return std::as_bytes(std::span(&value, 1)); }

class Writer final : public LearnedState {
 public:
  Writer(int fd, const std::string& path) : fd_(fd), path_(path) {}

  void Append(std::span<const std::byte> bytes) {
    checksum_.Update(bytes);
    if (bytes.size() >= kPieceBytes) {
      Flush();
      Write(bytes);
      return;
    }
    if (piece_.size() + bytes.size() > kPieceBytes) Flush();
    piece_.insert(piece_.end(), bytes.begin(), bytes.end());
  }
  void Visit(std::span<std::byte> array, size_t, absl::FunctionRef<bool(const std::byte*)>) override {
    const uint64_t size = array.size();
    Append(BytesOf(size));
    Append(array);
  }
  void Rows(LearnedRows& rows) override {
    std::vector<std::byte> row(rows.row_bytes());
    uint64_t size = 0;
    for (size_t i = 0; i < rows.rows(); ++i) size += rows.Write(i, row) ? row.size() : 0;
    Append(BytesOf(size));
    for (size_t i = 0; i < rows.rows(); ++i) {
      if (rows.Write(i, row)) Append(row);
    }
  }
  absl::Status Finish() {
    const uint64_t sum = checksum_.Value();
    Append(BytesOf(sum));
    Flush();
    return status_;
  }

 private:
  void Write(std::span<const std::byte> bytes) {
    if (status_.ok()) status_ = WriteAt(fd_, path_, offset_, bytes);
    offset_ += bytes.size();
  }
  void Flush() {
    Write(piece_);
    piece_.clear();
  }

  const int fd_;
  const std::string& path_;
  ChecksumStream checksum_;
  std::vector<std::byte> piece_;  // the end of what was appended: not written yet
  uint64_t offset_ = 0;
  absl::Status status_;
};

// Reads on in a file whose checksum was right. Arrays are either looked at or taken.
class Reader final : public LearnedState {
 public:
  enum class Purpose { kCheck, kTake };
  Reader(Purpose purpose, const RandomAccessFile& file, uint64_t begin, uint64_t end)
      : purpose_(purpose), file_(file), offset_(begin), end_(end) {}

  void Visit(std::span<std::byte> array, size_t element_bytes, absl::FunctionRef<bool(const std::byte*)> sane) override {
    const std::optional<uint64_t> size = NextSize();
    if (!size) {
      taken_.left_bytes += array.size();
      return;
    }
    if (*size == array.size()) {
      status_ = purpose_ == Purpose::kTake ? file_.ReadAt(offset_, array) : Check(*size, element_bytes, sane);
      taken_.taken_bytes += *size;
    } else {
      taken_.left_bytes += std::max<uint64_t>(*size, array.size());
    }
    offset_ += *size;
  }
  void Rows(LearnedRows& rows) override {
    const std::optional<uint64_t> size = NextSize();
    if (!size) return;
    const uint64_t end = offset_ + *size;
    std::vector<std::byte> row(rows.row_bytes());
    if (*size % row.size() != 0) status_ = DataLoss("a table of ", *size, " bytes has rows of ", row.size());
    for (; status_.ok() && offset_ < end; offset_ += row.size()) {
      status_ = file_.ReadAt(offset_, row);
      if (!status_.ok()) return;
      if (purpose_ == Purpose::kTake) {
        rows.Take(row);
      } else if (!rows.Sane(row)) {
        status_ = Impossible(offset_);
      }
    }
    const uint64_t room = rows.rows() * row.size();
    taken_.taken_bytes += std::min(*size, room);
    taken_.left_bytes += *size - std::min(*size, room);
  }
  const absl::Status& status() const { return status_; }
  const LearnedTaken& taken() const { return taken_; }

 private:
  // Of what comes next in the file, which ends with it or behind it; nothing once there is no more, or an error.
  std::optional<uint64_t> NextSize() {
    uint64_t size = 0;
    if (!status_.ok() || end_ - offset_ < sizeof(size)) return std::nullopt;
    status_ = file_.ReadAt(offset_, std::as_writable_bytes(std::span(&size, 1)));
    offset_ += sizeof(size);
    if (status_.ok() && size > end_ - offset_) status_ = DataLoss("an array of ", size, " bytes ends behind the file");
    return status_.ok() ? std::optional(size) : std::nullopt;
  }
  static absl::Status Impossible(uint64_t offset) {
    return absl::OutOfRangeError(StrCat("what it holds at byte ", offset, " cannot have been learned"));
  }

  absl::Status Check(uint64_t size, size_t element_bytes, absl::FunctionRef<bool(const std::byte*)> sane) {
    std::vector<std::byte> buffer(kPieceBytes / element_bytes * element_bytes);
    for (uint64_t at = 0; at < size; at += buffer.size()) {
      const auto piece = std::span(buffer).first(std::min<uint64_t>(buffer.size(), size - at));
      MOED_RETURN_IF_ERROR(file_.ReadAt(offset_ + at, piece));
      for (size_t element = 0; element < piece.size(); element += element_bytes) {
        if (!sane(&piece[element])) return Impossible(offset_ + at + element);
      }
    }
    return absl::OkStatus();
  }

  const Purpose purpose_;
  const RandomAccessFile& file_;
  uint64_t offset_;  // at most end_
  const uint64_t end_;
  LearnedTaken taken_;
  absl::Status status_;
};

absl::StatusOr<uint64_t> ChecksumOf(const RandomAccessFile& file, uint64_t end) {
  ChecksumStream checksum;
  std::vector<std::byte> buffer(kPieceBytes);
  for (uint64_t offset = 0; offset < end; offset += buffer.size()) {
    const auto piece = std::span(buffer).first(std::min<uint64_t>(buffer.size(), end - offset));
    MOED_RETURN_IF_ERROR(file.ReadAt(offset, piece));
    checksum.Update(piece);
  }
  return checksum.Value();
}

struct Start {
  std::array<char, 8> magic = kMagic;
  uint64_t model_hash = 0;
  uint64_t names_bytes = 0;
};

// Where the arrays begin.
absl::StatusOr<uint64_t> CheckFile(const LearnedFile& wanted, const RandomAccessFile& file) {
  Start start;
  if (file.size() < sizeof(start) + sizeof(uint64_t))
    return DataLoss(wanted.path, " holds nothing that was learned or measured: ", file.size(), " bytes");
  MOED_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(&start, 1))));
  const bool earlier = IsOfEarlierVersion(start.magic);
  if ((start.magic != kMagic && !earlier) || start.names_bytes > kLongestNames)
    return DataLoss(wanted.path, " holds nothing that was learned or measured");
  uint64_t sum = 0;
  MOED_RETURN_IF_ERROR(file.ReadAt(file.size() - sizeof(sum), std::as_writable_bytes(std::span(&sum, 1))));
  MOED_ASSIGN_OR_RETURN(const uint64_t found, ChecksumOf(file, file.size() - sizeof(sum)));
  if (found != sum) return DataLoss(wanted.path, ": wrong checksum, the file is damaged; remove it to learn anew");
  if (start.model_hash != wanted.model_hash) {
    return FailedPrecondition(wanted.path, " was learned with another store (model hash ",
                              absl::Hex(start.model_hash, absl::kZeroPad16), ", this one's is ",
                              absl::Hex(wanted.model_hash, absl::kZeroPad16), "); name another file");
  }
  if (start.names_bytes > file.size() - sizeof(start) - sizeof(sum)) return DataLoss(wanted.path, " ends within its names");
  std::string names(start.names_bytes, '\0');
  MOED_RETURN_IF_ERROR(file.ReadAt(sizeof(start), std::as_writable_bytes(std::span(names))));
  if (names != wanted.parts) {
    return FailedPrecondition(wanted.path, " was learned by ", names, ", now there are ", wanted.parts, "; name another file");
  }
  if (earlier) {
    return absl::OutOfRangeError(StrCat(wanted.path, " was written by an earlier version of moed, whose tables were others"));
  }
  return sizeof(start) + names.size();
}

absl::Status WriteAll(int fd, const std::string& path, const LearnedFile& file,
                      absl::FunctionRef<absl::Status(LearnedState&)> visit) {
  Writer writer(fd, path);
  const Start start{.model_hash = file.model_hash, .names_bytes = file.parts.size()};
  writer.Append(BytesOf(start));
  writer.Append(std::as_bytes(std::span(file.parts)));
  MOED_RETURN_IF_ERROR(visit(writer));
  return writer.Finish();
}

}  // namespace

absl::Status SaveLearned(const LearnedFile& file, VisitLearners visit) {
  return TrySaveLearned(file, [visit](LearnedState& state) {
    visit(state);
    return absl::OkStatus();
  });
}

absl::Status TrySaveLearned(const LearnedFile& file, absl::FunctionRef<absl::Status(LearnedState&)> visit) {
  return ReplaceFile(file.path, [&](int fd, const std::string& partial) { return WriteAll(fd, partial, file, visit); });
}

absl::Status CheckLearned(const LearnedFile& file) {
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> bytes, OpenBuffered(file.path));
  return CheckFile(file, *bytes).status();
}

absl::StatusOr<LearnedTaken> TakeLearned(const LearnedFile& file, VisitLearners visit) {
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> bytes, OpenBuffered(file.path));
  MOED_ASSIGN_OR_RETURN(const uint64_t begin, CheckFile(file, *bytes));
  LearnedTaken taken;
  for (const Reader::Purpose purpose : {Reader::Purpose::kCheck, Reader::Purpose::kTake}) {
    Reader reader(purpose, *bytes, begin, bytes->size() - sizeof(uint64_t));
    visit(reader);
    MOED_RETURN_IF_ERROR(Annotate(reader.status(), file.path));
    taken = reader.taken();
  }
  return taken;
}

}  // namespace moed
