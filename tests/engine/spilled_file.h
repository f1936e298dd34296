// What was spilled, in memory, under a test's control.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status.h"
#include "core/io/nameless_file.h"

namespace moed {

// Thread-safe. Faults last.
class SpilledFile final : public NamelessFile {
 public:
  void FailReads(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    read_failure_ = std::move(status);
  }
  // Whatever is written beyond so many bytes finds the disk full.
  void LimitTo(uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    limit_ = bytes;
  }
  void FlipBits(uint64_t begin, uint64_t every) {
    absl::MutexLock lock(&mutex_);
    for (uint64_t i = begin; i < contents_.size(); i += every) contents_[i] ^= std::byte{4};
  }
  void CutTo(uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    contents_.resize(std::min<size_t>(contents_.size(), bytes));
  }
  // Writes wait until there is no limit to them any more.
  void HoldWrites(bool hold) {
    absl::MutexLock lock(&mutex_);
    held_ = hold;
  }
  int writes() const {
    absl::MutexLock lock(&mutex_);
    return writes_;
  }
  void AwaitWriteHeld() {
    absl::MutexLock lock(&mutex_);
    const auto waits = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return waiting_; };
    mutex_.Await(absl::Condition(&waits));
  }

  uint64_t size() const override {
    absl::MutexLock lock(&mutex_);
    return contents_.size();
  }
  const std::string& path() const override { return path_; }
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    absl::MutexLock lock(&mutex_);
    if (!read_failure_.ok()) return read_failure_;
    if (offset + out.size() > contents_.size()) return DataLoss(path_, " ends early");
    std::copy_n(contents_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return absl::OkStatus();
  }
  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> bytes) override {
    absl::MutexLock lock(&mutex_);
    waiting_ = held_;
    const auto free = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !held_; };
    mutex_.Await(absl::Condition(&free));
    waiting_ = false;
    ++writes_;
    if (offset + bytes.size() > limit_) return ResourceExhausted("cannot write ", path_, ": No space left on device");
    contents_.resize(std::max<size_t>(contents_.size(), offset + bytes.size()));
    std::copy(bytes.begin(), bytes.end(), contents_.begin() + static_cast<std::ptrdiff_t>(offset));
    return absl::OkStatus();
  }

 private:
  const std::string path_ = "spilled";
  mutable absl::Mutex mutex_;
  std::vector<std::byte> contents_ ABSL_GUARDED_BY(mutex_);
  absl::Status read_failure_ ABSL_GUARDED_BY(mutex_);
  uint64_t limit_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  int writes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace moed
