#include "core/io/throttled_backend.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {
namespace {

class ThrottledBackend final : public ReadBackend {
 public:
  ThrottledBackend(std::unique_ptr<ReadBackend> device, double bytes_per_second, const Clock& clock)
      : device_(std::move(device)),
        nanos_per_byte_(1e9 / bytes_per_second),
        clock_(clock),
        description_(StrCat(device_->description(), ", slowed down to ", bytes_per_second / 1e6, " MB/s")),
        thread_([this] { Answer(); }) {
    MOED_CHECK(bytes_per_second > 0);
  }

  ~ThrottledBackend() override {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
    device_.reset();  // its last callback has returned before the mutex goes
  }

  std::string_view name() const override { return device_->name(); }
  const std::string& description() const override { return description_; }
  int max_in_flight() const override { return device_->max_in_flight(); }

  void Submit(ReadOp op) override {
    Read* read = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      const auto taken = static_cast<int64_t>(static_cast<double>(op.destination.size()) * nanos_per_byte_);
      free_at_nanos_ = std::max(free_at_nanos_, clock_.NowNanos()) + taken;
      read = &reads_.emplace_back(Read{free_at_nanos_, std::move(op.done), std::nullopt});
    }
    op.done = [this, read](absl::Status outcome) {
      absl::MutexLock lock(&mutex_);
      read->outcome = std::move(outcome);
    };
    device_->Submit(std::move(op));
  }

 private:
  struct Read {
    int64_t due_nanos;
    std::function<void(absl::Status)> done;
    std::optional<absl::Status> outcome;  // of the device
  };

  bool HeadIsRead() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return reads_.empty() ? stopping_ : reads_.front().outcome.has_value();
  }

  // Ends when stopping and nothing waits: whatever was submitted is answered.
  void Answer() {
    for (;;) {
      Read read;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &ThrottledBackend::HeadIsRead));
        if (reads_.empty()) return;
        read = std::move(reads_.front());
        reads_.pop_front();
      }
      SleepUntil(read.due_nanos);
      read.done(*std::move(read.outcome));
    }
  }

  void SleepUntil(int64_t due_nanos) const {
    for (int64_t left = due_nanos - clock_.NowNanos(); left > 0; left = due_nanos - clock_.NowNanos()) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(left));
    }
  }

  std::unique_ptr<ReadBackend> device_;
  const double nanos_per_byte_;
  const Clock& clock_;
  const std::string description_;
  absl::Mutex mutex_;
  std::deque<Read> reads_ ABSL_GUARDED_BY(mutex_);  // in order of submission; a deque's elements stay where they are
  int64_t free_at_nanos_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<ReadBackend> MakeThrottledBackend(std::unique_ptr<ReadBackend> device, double bytes_per_second,
                                                  const Clock& clock) {
  return std::make_unique<ThrottledBackend>(std::move(device), bytes_per_second, clock);
}

}  // namespace moed
