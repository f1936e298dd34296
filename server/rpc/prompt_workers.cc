#include "server/rpc/prompt_workers.h"

#include <utility>

namespace moed {

PromptWorkers::PromptWorkers(const Options& options) : options_(options) {
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { Loop(); });
}

PromptWorkers::~PromptWorkers() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

bool PromptWorkers::Submit(size_t bytes, std::function<void()> job) {
  absl::MutexLock lock(&mutex_);
  const bool alone = bytes_ == 0 && jobs_.empty();
  if (!alone && (jobs_.size() >= options_.max_jobs || bytes_ + bytes > options_.max_bytes)) return false;
  bytes_ += bytes;
  jobs_.push_back({bytes, std::move(job)});
  return true;
}

void PromptWorkers::Loop() {
  while (true) {
    Job job;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &PromptWorkers::Wakes));
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job.run();
    job.run = nullptr;  // lets go of the call before its bytes are given back
    absl::MutexLock lock(&mutex_);
    bytes_ -= job.bytes;
  }
}

}  // namespace moed
