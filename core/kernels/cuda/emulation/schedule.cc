#include "core/kernels/cuda/emulation/schedule.h"

#include <iterator>
#include <utility>

namespace moed::emulation {

int Schedule::AddStream() {
  streams_[next_stream_];
  return next_stream_++;
}

void Schedule::Enqueue(int stream, Work work) {
  std::deque<Work>& queue = streams_.at(stream);
  queue.push_back(std::move(work));
  if (queue.size() == 1) BeginFirst(queue);
  if (!lazy_) GetOn();
}

void Schedule::BeginFirst(std::deque<Work>& stream) {
  if (!stream.empty() && stream.front().begin != nullptr) std::exchange(stream.front().begin, nullptr)();
}

void Schedule::RunFirst(std::deque<Work>& stream) {
  const Work work = std::move(stream.front());
  stream.pop_front();
  if (work.run != nullptr) work.run();
  if (work.passes != nullptr) work.passes->passed = true;
  BeginFirst(stream);
}

// A few steps of streams that may take them.
void Schedule::GetOn() {
  for (auto steps = random_() % 3; steps > 0; --steps) {
    std::deque<Work>& queue = std::next(streams_.begin(), static_cast<ptrdiff_t>(random_() % streams_.size()))->second;
    if (!queue.empty() && !Waits(queue.front())) RunFirst(queue);
  }
}

void Schedule::RunNext(int stream) {
  std::deque<Work>& queue = streams_.at(stream);
  if (Waits(queue.front())) RunUntil(*queue.front().awaits);
  RunFirst(queue);
}

void Schedule::RunUntil(const Recording& recording) {
  while (!recording.passed) RunNext(recording.stream);
}

void Schedule::RunAll(int stream) {
  while (!Idle(stream)) RunNext(stream);
}

void Schedule::RunAll() {
  for (const auto& [stream, queue] : streams_) RunAll(stream);
}

}  // namespace moed::emulation
