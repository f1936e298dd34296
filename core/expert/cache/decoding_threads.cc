#include "core/expert/cache/decoding_threads.h"

#include <utility>

#include "absl/cleanup/cleanup.h"

namespace moed {

DecodingThreads::DecodingThreads() {
  absl::Cleanup no_thread_is_left = [this] { End(); };
  for (std::thread& thread : threads_) thread = std::thread([this] { Run(); });
  std::move(no_thread_is_left).Cancel();
}

DecodingThreads::~DecodingThreads() { End(); }

void DecodingThreads::End() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void DecodingThreads::Add(std::function<void(SegmentDecoder&)> work) {
  absl::MutexLock lock(&mutex_);
  work_.push_back(std::move(work));
}

void DecodingThreads::Run() {
  SegmentDecoder decoder;
  for (;;) {
    std::function<void(SegmentDecoder&)> work;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &DecodingThreads::Wakes));
      if (work_.empty()) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    work(decoder);
  }
}

}  // namespace moed
