#include <algorithm>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/synchronization/mutex.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/io/backends.h"
#include "core/io/posix_file.h"

namespace moed {
namespace {

constexpr int kMostThreads = 8;

// One queue, several threads that each read one range at a time.
class ThreadedBackend final : public ReadBackend {
 public:
  ThreadedBackend(std::string name, std::shared_ptr<const RandomAccessFile> file, int threads)
      : name_(std::move(name)),
        description_(StrCat(name_, " pread, ", threads, threads == 1 ? " thread" : " threads")),
        file_(std::move(file)) {
    MOED_CHECK(threads >= 1);
    absl::Cleanup no_thread_is_left = [this] { End(); };
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
    std::move(no_thread_is_left).Cancel();
  }

  ~ThreadedBackend() override { End(); }

  std::string_view name() const override { return name_; }
  const std::string& description() const override { return description_; }
  int max_in_flight() const override { return static_cast<int>(threads_.size()); }

  void Submit(ReadOp op) override {
    CheckAligned(op);
    absl::MutexLock lock(&mutex_);
    waiting_.push_back(std::move(op));
  }

 private:
  void End() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    for (std::thread& thread : threads_) thread.join();
  }

  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !waiting_.empty(); }

  // Ends when stopping and nothing waits: whatever was submitted is answered.
  void Work() {
    for (;;) {
      ReadOp op;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &ThreadedBackend::HasWork));
        if (waiting_.empty()) return;
        op = std::move(waiting_.front());
        waiting_.pop_front();
      }
      op.done(file_->ReadAt(op.offset, op.destination));
    }
  }

  const std::string name_;
  const std::string description_;
  const std::shared_ptr<const RandomAccessFile> file_;
  absl::Mutex mutex_;
  std::deque<ReadOp> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace

std::unique_ptr<ReadBackend> MakeThreadedReadBackend(std::string name, std::shared_ptr<const RandomAccessFile> file,
                                                     int threads) {
  return std::make_unique<ThreadedBackend>(std::move(name), std::move(file), threads);
}

absl::StatusOr<std::unique_ptr<ReadBackend>> OpenDirectBackend(const std::string& path, const ReadBackendOptions& options) {
  MOED_ASSIGN_OR_RETURN(std::shared_ptr<const RandomAccessFile> file, PosixFile::OpenDirect(path, options.probe));
  return MakeThreadedReadBackend("direct", std::move(file), std::min(options.queue_depth, kMostThreads));
}

absl::StatusOr<std::unique_ptr<ReadBackend>> OpenBufferedBackend(const std::string& path, const ReadBackendOptions& options) {
  MOED_ASSIGN_OR_RETURN(std::shared_ptr<const RandomAccessFile> file, PosixFile::OpenBuffered(path));
  return MakeThreadedReadBackend("buffered", std::move(file), std::min(options.queue_depth, kMostThreads));
}

}  // namespace moed
