#include "server/rpc/sender.h"

#include <pthread.h>

#include <utility>

namespace moed {

Sender::Sender() : thread_([this] { Loop(); }) { pthread_setname_np(thread_.native_handle(), "sender"); }

Sender::~Sender() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void Sender::Post(std::shared_ptr<Outgoing> outgoing) {
  absl::MutexLock lock(&mutex_);
  posted_.push_back(std::move(outgoing));
}

void Sender::Loop() {
  for (std::vector<std::shared_ptr<Outgoing>> sending;; sending.clear()) {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Sender::Wakes));
      if (posted_.empty()) return;
      sending.swap(posted_);
    }
    for (const std::shared_ptr<Outgoing>& outgoing : sending) outgoing->Send();
  }
}

}  // namespace moed
