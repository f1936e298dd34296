#include "server/rpc/prompt_workers.h"

#include <algorithm>
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

void PromptWorkers::SetLimits(size_t max_jobs, size_t max_bytes) {
  absl::MutexLock lock(&mutex_);
  options_.max_jobs = max_jobs;
  options_.max_bytes = max_bytes;
}

bool PromptWorkers::Submit(WorkKind kind, size_t bytes, std::function<void()> job) {
  absl::MutexLock lock(&mutex_);
  Queue& queue = queues_[static_cast<size_t>(kind)];
  const bool full = queue.jobs.size() >= options_.max_jobs || queue.bytes + bytes > options_.max_bytes;
  if (full && !queue.jobs.empty()) return false;
  queue.jobs.push_back({bytes, std::move(job)});
  queue.bytes += bytes;
  return true;
}

bool PromptWorkers::Wakes() const {
  return stopping_ || std::ranges::any_of(queues_, [](const Queue& queue) { return !queue.jobs.empty(); });
}

PromptWorkers::Queue* PromptWorkers::NextQueue() {
  for (int i = 0; i < kWorkKinds; ++i) {
    Queue& queue = queues_[static_cast<size_t>(turn_)];
    turn_ = (turn_ + 1) % kWorkKinds;
    if (!queue.jobs.empty()) return &queue;
  }
  return nullptr;
}

void PromptWorkers::Loop() {
  while (true) {
    Job job;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &PromptWorkers::Wakes));
      Queue* const queue = NextQueue();
      if (queue == nullptr) return;
      job = std::move(queue->jobs.front());
      queue->jobs.pop_front();
      // Before it runs: whoever has its answer finds the queue as if it had never been there.
      queue->bytes -= job.bytes;
    }
    job.run();
  }
}

}  // namespace moed
