#include "core/base/executor.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"

namespace moed {
namespace {

inline void SpinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // about as long as x86's pause; "yield" is nothing on most of them
#endif
}

// A loop is cut into ranges that threads claim one by one, so a slow thread takes fewer and nobody waits for one that has not
// woken.
class ThreadPool final : public Executor {
 public:
  explicit ThreadPool(int threads) {
    absl::Cleanup no_thread_is_left = [this] { End(); };
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
    std::move(no_thread_is_left).Cancel();
  }

  ~ThreadPool() override { End(); }

  int threads() const override { return static_cast<int>(workers_.size()) + 1; }

  void ParallelFor(int count, int grain, absl::FunctionRef<void(int, int)> body) override {
    if (count <= 0) return;
    if (workers_.empty() || count <= grain) return body(0, count);
    grains_ = (int64_t{count} + grain - 1) / grain;
    ranges_ = static_cast<uint32_t>(std::min<int64_t>(grains_, threads() * kRangesPerThread));
    grain_ = grain;
    count_ = count;
    body_ = &body;
    unfinished_.store(ranges_, std::memory_order_relaxed);
    const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
    claims_.store(uint64_t{generation} << 32 | ranges_, std::memory_order_release);
    generation_.store(generation, std::memory_order_release);
    generation_.notify_all();
    RunRanges(generation);
    for (int spins = 0; unfinished_.load(std::memory_order_acquire) != 0; ++spins) {
      if (spins < kSpins) {
        SpinPause();
      } else {
        std::this_thread::yield();  // the thread that holds the last range may need this core
      }
    }
  }

 private:
  static constexpr int kRangesPerThread = 4;
  static constexpr int kSpins = 2000;

  void End() {
    stop_ = true;
    generation_.fetch_add(1);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  // Claims and runs ranges of loop `generation` until none is left. A claim keeps the loop from ending, so what describes it is
  // read only after one.
  void RunRanges(uint32_t generation) {
    uint64_t claims = claims_.load(std::memory_order_acquire);
    while (claims >> 32 == generation && static_cast<uint32_t>(claims) != 0) {
      if (!claims_.compare_exchange_weak(claims, claims - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      const uint32_t range = ranges_ - static_cast<uint32_t>(claims);
      (*body_)(static_cast<int>(Begin(range)), static_cast<int>(std::min(Begin(range + 1), int64_t{count_})));
      unfinished_.fetch_sub(1, std::memory_order_release);
      claims = claims_.load(std::memory_order_acquire);
    }
  }

  // Ranges differ by one grain at most, so that threads end together.
  int64_t Begin(uint32_t range) const { return range * grains_ / ranges_ * grain_; }

  void Work() {
    uint32_t seen = 0;
    for (;;) {
      for (int i = 0; i < kSpins && generation_.load(std::memory_order_relaxed) == seen; ++i) SpinPause();
      generation_.wait(seen, std::memory_order_acquire);
      seen = generation_.load(std::memory_order_acquire);
      if (stop_) return;
      RunRanges(seen);
    }
  }

  std::vector<std::thread> workers_;
  std::atomic<bool> stop_{false};
  // On lines of their own: who waits for one is not disturbed by changes of another.
  alignas(64) std::atomic<uint32_t> generation_{0};  // of the latest loop; what sleeping workers watch
  alignas(64) std::atomic<uint64_t> claims_{0};      // generation << 32 | ranges nobody has claimed yet
  alignas(64) std::atomic<uint32_t> unfinished_{0};  // ranges whose body has not returned
  // The loop: written before claims_ announces it.
  alignas(64) const absl::FunctionRef<void(int, int)>* body_ = nullptr;
  int count_ = 0;
  int grain_ = 1;
  int64_t grains_ = 0;
  uint32_t ranges_ = 0;
};

}  // namespace

std::unique_ptr<Executor> MakeThreadPool(int threads) {
  if (threads <= 1) return std::make_unique<InlineExecutor>();
  return std::make_unique<ThreadPool>(threads);
}

}  // namespace moed
