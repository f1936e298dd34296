#include "core/store/awaited_reads.h"

#include <utility>

#include "core/io/read_backend.h"

namespace moed {

void AwaitedReads::Submit(uint64_t offset, std::span<std::byte> destination, absl::Status& outcome) {
  {
    absl::MutexLock lock(&mutex_);
    ++unanswered_;
  }
  reads_.Submit({offset, destination, [this, &outcome](absl::Status answer) {
                   absl::MutexLock lock(&mutex_);
                   outcome.Update(std::move(answer));
                   --unanswered_;
                 }});
}

void AwaitedReads::Wait() {
  const auto all_answered = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return unanswered_ == 0; };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&all_answered));
}

}  // namespace moed
