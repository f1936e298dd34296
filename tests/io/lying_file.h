// Files and backends under a test's control, for every module that reads.
//   LyingFile         an honest file with scripted faults: failing, short, flipped and held-back reads
//   ManualReadBackend records what it is given and answers only when told, on the thread that tells it
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/io/read_backend.h"

namespace moed {

// [begin, end) of the file. A fault concerns every read that touches its range.
struct FileRange {
  uint64_t begin = 0;
  uint64_t end = UINT64_MAX;
};

// Thread-safe. Faults last until Heal; a read that several concern is held first, then fails, then is cut short, then flipped.
class LyingFile final : public RandomAccessFile {
 public:
  explicit LyingFile(std::shared_ptr<const RandomAccessFile> honest) : honest_(std::move(honest)) {}
  LyingFile(std::string name, std::string contents) : LyingFile(MakeMemoryFile(std::move(name), std::move(contents))) {}

  void FailWith(FileRange range, absl::Status error) { Add({Kind::kFail, range, std::move(error)}); }
  void FailWithErrno(FileRange range, int error_number) { FailWith(range, ErrnoError(error_number, "cannot read ", path())); }
  // As if the file ended at range.begin: what lies before it is delivered, the answer is DATA_LOSS.
  void CutShort(FileRange range) { Add({Kind::kCut, range, {}}); }
  // The read succeeds with bit `bit` (0..7) of the byte at `offset` wrong.
  void FlipBit(uint64_t offset, int bit) { Add({Kind::kFlip, {offset, offset + 1}, {}, bit}); }
  // Reads wait until Release (or Heal).
  void Hold(FileRange range) { Add({Kind::kHold, range, {}}); }

  void Release() {
    Remove([](const Fault& fault) { return fault.kind == Kind::kHold; });
  }
  void Heal() {
    Remove([](const Fault&) { return true; });
  }

  // Returns once `count` reads are waiting in a Hold.
  void WaitUntilHeld(int count) const {
    const auto reached = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return held_ >= count; };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&reached));
  }
  // Reads begun so far.
  int reads() const {
    absl::MutexLock lock(&mutex_);
    return reads_;
  }

  uint64_t size() const override { return honest_->size(); }
  const std::string& path() const override { return honest_->path(); }

  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    const FileRange wanted{offset, offset + out.size()};
    const std::vector<Fault> faults = Begin(wanted);
    for (const Fault& fault : faults) {
      if (fault.kind == Kind::kFail) return fault.error;
    }
    for (const Fault& fault : faults) {
      if (fault.kind == Kind::kCut) return ReadCutShort(wanted, out, fault.range.begin);
    }
    MOED_RETURN_IF_ERROR(honest_->ReadAt(offset, out));
    for (const Fault& fault : faults) {
      if (fault.kind == Kind::kFlip) out[fault.range.begin - offset] ^= static_cast<std::byte>(1 << fault.bit);
    }
    return absl::OkStatus();
  }

 private:
  enum class Kind { kHold, kFail, kCut, kFlip };
  struct Fault {
    Kind kind;
    FileRange range;
    absl::Status error;
    int bit = 0;
    bool Touches(FileRange other) const { return range.begin < other.end && other.begin < range.end; }
  };

  void Add(Fault fault) {
    absl::MutexLock lock(&mutex_);
    faults_.push_back(std::move(fault));
  }
  template <class Predicate>
  void Remove(Predicate&& predicate) {
    absl::MutexLock lock(&mutex_);
    std::erase_if(faults_, predicate);
  }

  // Waits out every Hold, then says what else is wrong with the range.
  std::vector<Fault> Begin(FileRange wanted) const {
    const auto free = [this, wanted]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::none_of(faults_.begin(), faults_.end(),
                          [&](const Fault& fault) { return fault.kind == Kind::kHold && fault.Touches(wanted); });
    };
    absl::MutexLock lock(&mutex_);
    ++reads_;
    ++held_;
    mutex_.Await(absl::Condition(&free));
    --held_;
    std::vector<Fault> touching;
    for (const Fault& fault : faults_) {
      if (fault.Touches(wanted)) touching.push_back(fault);
    }
    return touching;
  }

  absl::Status ReadCutShort(FileRange wanted, std::span<std::byte> out, uint64_t end) const {
    const size_t got = end > wanted.begin ? end - wanted.begin : 0;
    MOED_RETURN_IF_ERROR(honest_->ReadAt(wanted.begin, out.first(got)));
    return DataLoss(path(), " ends early: at offset ", wanted.begin, " wanted ", out.size(), " bytes, got ", got);
  }

  const std::shared_ptr<const RandomAccessFile> honest_;
  mutable absl::Mutex mutex_;
  std::vector<Fault> faults_ ABSL_GUARDED_BY(mutex_);
  mutable int reads_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable int held_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Thread-safe. Whoever destroys it has answered everything (checked).
class ManualReadBackend final : public ReadBackend {
 public:
  // With a file, a read that is answered OK is filled from it.
  explicit ManualReadBackend(int max_in_flight = 1, std::shared_ptr<const RandomAccessFile> file = nullptr)
      : max_in_flight_(max_in_flight), file_(std::move(file)) {}
  ~ManualReadBackend() override { MOED_CHECK(pending().empty()); }

  std::string_view name() const override { return "manual"; }
  const std::string& description() const override { return description_; }
  int max_in_flight() const override { return max_in_flight_; }
  void Submit(ReadOp op) override {
    absl::MutexLock lock(&mutex_);
    submitted_.push_back(op.offset);
    pending_.push_back(std::move(op));
  }

  // Offsets of the unanswered reads, and of all reads ever submitted, in the order of submission.
  std::vector<uint64_t> pending() const {
    absl::MutexLock lock(&mutex_);
    std::vector<uint64_t> offsets;
    for (const ReadOp& op : pending_) offsets.push_back(op.offset);
    return offsets;
  }
  std::vector<uint64_t> submitted() const {
    absl::MutexLock lock(&mutex_);
    return submitted_;
  }
  // Returns once at least `count` reads are unanswered.
  void WaitForPending(size_t count) const {
    const auto reached = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pending_.size() >= count; };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&reached));
  }

  // Answers the oldest unanswered read (of `offset`), here and now. False when there is none.
  bool CompleteNext(absl::Status outcome = absl::OkStatus()) { return Answer(std::nullopt, std::move(outcome)); }
  bool Complete(uint64_t offset, absl::Status outcome = absl::OkStatus()) { return Answer(offset, std::move(outcome)); }
  // Until nothing is unanswered, reads submitted meanwhile included.
  void CompleteAll() {
    while (CompleteNext()) {
    }
  }

 private:
  bool Answer(std::optional<uint64_t> offset, absl::Status outcome) {
    ReadOp op;
    {
      absl::MutexLock lock(&mutex_);
      const auto found = std::find_if(pending_.begin(), pending_.end(),
                                      [&](const ReadOp& candidate) { return !offset || candidate.offset == *offset; });
      if (found == pending_.end()) return false;
      op = std::move(*found);
      pending_.erase(found);
    }
    if (outcome.ok() && file_ != nullptr) outcome = file_->ReadAt(op.offset, op.destination);
    op.done(std::move(outcome));
    return true;
  }

  const int max_in_flight_;
  const std::shared_ptr<const RandomAccessFile> file_;
  const std::string description_ = "manual, answered by the test";
  mutable absl::Mutex mutex_;
  std::vector<ReadOp> pending_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> submitted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moed
