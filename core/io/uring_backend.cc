#include <liburing.h>

#include <array>
#include <cerrno>
#include <deque>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/io/backends.h"
#include "core/io/io_uring_check.h"
#include "core/io/posix_file.h"

namespace moed {
namespace {

// Reads from this size on are begun by a thread of the kernel's: beginning one pins its pages, and makes those that were never
// touched, which would take longer than waking that thread and would be done by the caller, who has computing to do.
constexpr size_t kBegunByKernelBytes = 1 << 20;

struct SetupFailure {
  int error_number;
  const char* reason;
};
constexpr std::array<SetupFailure, 3> kSetupFailures = {{
    {ENOSYS, "this kernel has no io_uring, or a seccomp filter hides it"},
    {EPERM, "blocked by a seccomp filter (Docker's default profile does) or by sysctl kernel.io_uring_disabled"},
    {ENOMEM, "the rings do not fit the locked memory limit (ulimit -l)"},
}};

absl::Status SetupError(int error_number) {
  for (const SetupFailure& failure : kSetupFailures) {
    if (failure.error_number == error_number) return ErrnoError(error_number, "cannot set up io_uring, ", failure.reason);
  }
  return ErrnoError(error_number, "cannot set up io_uring");
}

// Owns the rings.
class Ring {
 public:
  static absl::StatusOr<std::unique_ptr<Ring>> Create(int entries) {
    auto ring = std::unique_ptr<Ring>(new Ring);
    const int result = io_uring_queue_init(static_cast<unsigned>(entries), &ring->ring_, 0);
    if (result < 0) return SetupError(-result);
    ring->created_ = true;
    return ring;
  }
  ~Ring() {
    if (created_) io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // One caller at a time, and never more entries in flight than Create was asked for. `tag` comes back from Wait.
  void Read(int descriptor, const ReadProgress& progress, void* tag, bool begun_by_kernel) {
    io_uring_sqe* entry = Entry();
    io_uring_prep_read(entry, descriptor, progress.data(), static_cast<unsigned>(progress.size()), progress.offset());
    io_uring_sqe_set_data(entry, tag);
    if (begun_by_kernel) io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
  }
  void Nothing(void* tag) {
    io_uring_sqe* entry = Entry();
    io_uring_prep_nop(entry);
    io_uring_sqe_set_data(entry, tag);
  }
  // Hands the entries made since the last call to the kernel.
  void Submit() {
    while (io_uring_sq_ready(&ring_) > 0) {
      const int result = io_uring_submit(&ring_);
      MOED_CHECK(result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY);
      if (result <= 0) std::this_thread::yield();
    }
  }

  struct Completion {
    void* tag;
    int answer;
  };
  // Sleeps until the next completion. One caller, beside the one of the functions above.
  Completion Wait() {
    io_uring_cqe* entry = nullptr;
    int result;
    do result = io_uring_wait_cqe(&ring_, &entry);
    while (result == -EINTR || result == -EAGAIN);
    MOED_CHECK(result == 0);
    const Completion completion{io_uring_cqe_get_data(entry), entry->res};
    io_uring_cqe_seen(&ring_, entry);
    return completion;
  }

 private:
  Ring() = default;
  io_uring_sqe* Entry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    MOED_CHECK(entry != nullptr);
    return entry;
  }

  io_uring ring_{};
  bool created_ = false;
};

// A kernel may have the rings and yet not this kind of read.
absl::Status ProbeRead(Ring& ring, const PosixFile& file, std::span<std::byte> probe) {
  MOED_ASSIGN_OR_RETURN(const Buffer page, Buffer::Allocate(kDirectAlignment));
  if (probe.empty()) probe = page.span();
  for (;;) {
    ring.Read(file.descriptor(), ReadProgress(0, probe, kDirectAlignment), nullptr, false);
    ring.Submit();
    const int answer = ring.Wait().answer;
    if (answer == -EINTR || answer == -EAGAIN) continue;
    if (answer < 0) return ErrnoError(-answer, "cannot read ", file.path(), " through io_uring with O_DIRECT");
    return absl::OkStatus();
  }
}

// Submitters hand reads to the kernel themselves, as long as a slot is free; one thread takes the completions.
class UringBackend final : public ReadBackend {
 public:
  UringBackend(std::unique_ptr<PosixFile> file, std::unique_ptr<Ring> ring, int depth)
      : description_(StrCat("io_uring with O_DIRECT, queue depth ", depth)),
        file_(std::move(file)),
        ring_(std::move(ring)),
        slots_(depth) {
    for (Slot& slot : slots_) free_.push_back(&slot);
    completions_ = std::thread([this] { TakeCompletions(); });
  }

  ~UringBackend() override {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &UringBackend::AllAnswered));
      ring_->Nothing(nullptr);
      ring_->Submit();
    }
    completions_.join();
  }

  std::string_view name() const override { return "io_uring"; }
  const std::string& description() const override { return description_; }
  int max_in_flight() const override { return static_cast<int>(slots_.size()); }

  void Submit(ReadOp op) override {
    CheckAligned(op);
    absl::MutexLock lock(&mutex_);
    ++unanswered_;
    waiting_.push_back(std::move(op));
    StartWaiting();
  }

 private:
  struct Slot {
    std::optional<ReadProgress> progress;
    bool begun_by_kernel = false;
    std::function<void(absl::Status)> done;
  };
  struct Answered {
    std::function<void(absl::Status)> done;
    absl::Status outcome;
  };

  bool AllAnswered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return unanswered_ == 0; }

  void StartWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (!waiting_.empty() && !free_.empty()) {
      Slot* slot = free_.back();
      free_.pop_back();
      ReadOp& op = waiting_.front();
      slot->progress.emplace(op.offset, op.destination, kDirectAlignment);
      slot->begun_by_kernel = slot->progress->size() >= kBegunByKernelBytes;
      slot->done = std::move(op.done);
      waiting_.pop_front();
      ring_->Read(file_->descriptor(), *slot->progress, slot, slot->begun_by_kernel);
    }
    ring_->Submit();
  }

  // Nothing while the range is unfinished: the rest is then on its way.
  std::optional<Answered> Take(Slot* slot, int answer) {
    absl::MutexLock lock(&mutex_);
    // The kernel has no thread to begin it with: it is begun here.
    const bool no_thread = answer == -ECANCELED && std::exchange(slot->begun_by_kernel, false);
    auto outcome = no_thread ? std::nullopt : slot->progress->Take(file_->path(), answer);
    if (!outcome) {
      ring_->Read(file_->descriptor(), *slot->progress, slot, slot->begun_by_kernel);
      ring_->Submit();
      return std::nullopt;
    }
    Answered answered{std::exchange(slot->done, nullptr), *std::move(outcome)};
    free_.push_back(slot);
    StartWaiting();
    return answered;
  }

  void TakeCompletions() {
    for (;;) {
      const auto [tag, answer] = ring_->Wait();
      if (tag == nullptr) return;
      {
        std::optional<Answered> answered = Take(static_cast<Slot*>(tag), answer);
        if (!answered) continue;
        answered->done(std::move(answered->outcome));
      }
      absl::MutexLock lock(&mutex_);
      --unanswered_;
    }
  }

  const std::string description_;
  const std::unique_ptr<PosixFile> file_;
  const std::unique_ptr<Ring> ring_;  // submission side under mutex_, completion side on completions_
  absl::Mutex mutex_;
  std::vector<Slot> slots_;  // never resized; one that is not in free_ belongs to a read in flight
  std::vector<Slot*> free_ ABSL_GUARDED_BY(mutex_);
  std::deque<ReadOp> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t unanswered_ ABSL_GUARDED_BY(mutex_) = 0;  // submitted, and done has not returned
  std::thread completions_;
};

}  // namespace

absl::Status CheckIoUring() { return Ring::Create(ReadBackendOptions{}.queue_depth).status(); }

absl::StatusOr<std::unique_ptr<ReadBackend>> OpenUringBackend(const std::string& path, const ReadBackendOptions& options) {
  MOED_ASSIGN_OR_RETURN(std::unique_ptr<PosixFile> file, PosixFile::OpenDirect(path, options.probe));
  MOED_ASSIGN_OR_RETURN(std::unique_ptr<Ring> ring, Ring::Create(options.queue_depth));
  MOED_RETURN_IF_ERROR(ProbeRead(*ring, *file, options.probe));
  return std::make_unique<UringBackend>(std::move(file), std::move(ring), options.queue_depth);
}

}  // namespace moed
