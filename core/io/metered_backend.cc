#include "core/io/metered_backend.h"

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace moed {
namespace {

// Keeps what the device would only let wait, so that it can still be taken back.
class MeteredBackend final : public ReadBackend {
 public:
  MeteredBackend(ReadBackend& device, std::function<absl::Status(uint64_t)> on_read)
      : device_(device), on_read_(std::move(on_read)) {}
  ~MeteredBackend() override {
    absl::MutexLock lock(&mutex_);
    const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return in_flight_ == 0 && waiting_.empty(); };
    mutex_.Await(absl::Condition(&idle));
  }

  std::string_view name() const override { return device_.name(); }
  const std::string& description() const override { return device_.description(); }
  int max_in_flight() const override { return device_.max_in_flight(); }

  void Submit(ReadOp op) override {
    absl::Status end;
    {
      absl::MutexLock lock(&mutex_);
      end = end_;
      if (end.ok() && in_flight_ >= device_.max_in_flight()) return waiting_.push_back(std::move(op));
      if (end.ok()) ++in_flight_;
    }
    if (!end.ok()) return op.done(end);
    SubmitToDevice(std::move(op));
  }

 private:
  void SubmitToDevice(ReadOp op) {
    const size_t bytes = op.destination.size();
    op.done = [this, bytes, done = std::move(op.done)](absl::Status outcome) { Answered(bytes, std::move(outcome), done); };
    device_.Submit(std::move(op));
  }

  void Answered(size_t bytes, absl::Status outcome, const std::function<void(absl::Status)>& done) {
    std::deque<ReadOp> given_up;
    absl::Status end;
    {
      absl::MutexLock lock(&mutex_);
      end_.Update(on_read_(bytes));
      end = end_;
      if (!end.ok()) given_up.swap(waiting_);
    }
    for (const ReadOp& op : given_up) op.done(end);
    done(std::move(outcome));
    if (std::optional<ReadOp> next = NextInItsPlace()) SubmitToDevice(*std::move(next));
  }

  // Without one nothing of this is touched any more: whoever waits for the end goes on.
  std::optional<ReadOp> NextInItsPlace() {
    absl::MutexLock lock(&mutex_);
    if (waiting_.empty()) {
      --in_flight_;
      return std::nullopt;
    }
    ReadOp next = std::move(waiting_.front());
    waiting_.pop_front();
    return next;
  }

  ReadBackend& device_;
  const std::function<absl::Status(uint64_t)> on_read_;
  absl::Mutex mutex_;
  std::deque<ReadOp> waiting_ ABSL_GUARDED_BY(mutex_);
  int in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<ReadBackend> MakeMeteredBackend(ReadBackend& device, std::function<absl::Status(uint64_t bytes)> on_read) {
  return std::make_unique<MeteredBackend>(device, std::move(on_read));
}

}  // namespace moed
