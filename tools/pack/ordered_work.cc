#include "tools/pack/ordered_work.h"

#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace moed {
namespace {

using Make = absl::FunctionRef<void(int64_t piece, int slot)>;
using Take = absl::FunctionRef<absl::Status(int64_t piece, int slot)>;

class OrderedWork {
 public:
  OrderedWork(int64_t pieces, int window) : pieces_(pieces), window_(window), made_(static_cast<size_t>(window)) {}

  // Of one thread, until nothing is left to begin.
  void Work(Make make, Take take) {
    absl::MutexLock lock(&mutex_);
    for (;;) {
      mutex_.Await(absl::Condition(this, &OrderedWork::MayGoOn));
      if (Over()) return;
      const int64_t piece = begun_++;
      mutex_.Unlock();
      make(piece, SlotOf(piece));
      mutex_.Lock();
      made_[SlotOf(piece)] = true;
      TakeMade(take);
    }
  }

  absl::Status status() {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

 private:
  int SlotOf(int64_t piece) const { return static_cast<int>(piece % window_); }
  bool Over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return begun_ == pieces_ || !status_.ok(); }
  bool MayGoOn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Over() || begun_ < taken_ + window_; }

  // Whoever takes goes on until the next piece is not there; who comes meanwhile leaves its own to it.
  void TakeMade(Take take) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (std::exchange(taking_, true)) return;
    while (status_.ok() && taken_ < pieces_ && made_[SlotOf(taken_)]) {
      const int64_t piece = taken_;
      mutex_.Unlock();
      absl::Status taken = take(piece, SlotOf(piece));
      mutex_.Lock();
      status_.Update(std::move(taken));
      made_[SlotOf(piece)] = false;
      ++taken_;
    }
    taking_ = false;
  }

  const int64_t pieces_;
  const int64_t window_;
  absl::Mutex mutex_;
  std::vector<char> made_ ABSL_GUARDED_BY(mutex_);  // by slot
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  bool taking_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status WorkInOrder(Executor& executor, int64_t pieces, int window, Make make, Take take) {
  OrderedWork work(pieces, window);
  executor.ParallelFor(executor.threads(), 1, [&](int begin, int end) {
    for (int thread = begin; thread < end; ++thread) work.Work(make, take);
  });
  return work.status();
}

}  // namespace moed
