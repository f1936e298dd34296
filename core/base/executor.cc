#include "core/base/executor.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace moed {
namespace {

inline void SpinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// One generation number announces a loop; ranges are taken from a shared counter, so a slow thread takes fewer.
class ThreadPool final : public Executor {
 public:
  explicit ThreadPool(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
  }

  ~ThreadPool() override {
    stop_ = true;
    generation_.fetch_add(1);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  int threads() const override { return static_cast<int>(workers_.size()) + 1; }

  void ParallelFor(int count, int grain, absl::FunctionRef<void(int, int)> body) override {
    if (count <= 0) return;
    if (workers_.empty() || count <= grain) return body(0, count);
    body_ = &body;
    count_ = count;
    const int grains = (count + grain - 1) / grain;
    step_ = std::max(1, grains / (threads() * kRangesPerThread)) * grain;
    next_.store(0, std::memory_order_relaxed);
    running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    RunRanges();
    while (running_.load(std::memory_order_acquire) != 0) SpinPause();
  }

 private:
  static constexpr int kRangesPerThread = 4;
  static constexpr int kSpins = 2000;

  void RunRanges() {
    for (int begin; (begin = next_.fetch_add(step_, std::memory_order_relaxed)) < count_;) {
      (*body_)(begin, std::min(begin + step_, count_));
    }
  }

  void Work() {
    uint32_t seen = 0;
    for (;;) {
      for (int i = 0; i < kSpins && generation_.load(std::memory_order_relaxed) == seen; ++i) SpinPause();
      generation_.wait(seen, std::memory_order_acquire);
      seen = generation_.load(std::memory_order_acquire);
      if (stop_) return;
      RunRanges();
      running_.fetch_sub(1, std::memory_order_release);
    }
  }

  std::vector<std::thread> workers_;
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> generation_{0};
  std::atomic<int> next_{0};
  std::atomic<int> running_{0};
  // Written before a generation is announced, read after it was seen.
  const absl::FunctionRef<void(int, int)>* body_ = nullptr;
  int count_ = 0;
  int step_ = 1;
};

}  // namespace

std::unique_ptr<Executor> MakeThreadPool(int threads) {
  if (threads <= 1) return std::make_unique<InlineExecutor>();
  return std::make_unique<ThreadPool>(threads);
}

}  // namespace moed
