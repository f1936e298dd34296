#include "core/kernels/cuda/emulation/runtime.h"

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "core/base/lost_device.h"
#include "core/base/status.h"
#include "core/kernels/cuda/emulation/device_address.h"
#include "core/kernels/cuda/emulation/device_memory.h"
#include "core/kernels/cuda/emulation/launch.h"
#include "core/kernels/cuda/emulation/matmul.h"
#include "core/kernels/cuda/emulation/schedule.h"
#include "core/kernels/cuda/kernel_name.h"

namespace moed::emulation {
namespace {

template <class T>
T* OnHost(T* address) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(address) & ~kDeviceBit);
}

class Runtime;

class Event final : public ReadyEvent {
 public:
  explicit Event(Runtime& runtime) : runtime_(runtime) {}
  bool Ready() const override;

  std::shared_ptr<Recording> recording;  // the last; guarded by the runtime's mutex

 private:
  Runtime& runtime_;
};

// As aligned as any type may ask for.
using Arguments = std::vector<std::max_align_t>;
std::shared_ptr<const Arguments> CopyOf(std::span<const std::byte> arguments) {
  auto copy = std::make_shared<Arguments>((arguments.size() + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
  std::memcpy(copy->data(), arguments.data(), arguments.size());
  return copy;
}

struct HeldLaunch {
  Kernel kernel;
  LaunchShape shape;
  std::shared_ptr<const Arguments> arguments;
};

class Graph final : public LaunchGraph {
 public:
  explicit Graph(std::span<const KernelLaunch> given) {
    for (const KernelLaunch& launch : given) {
      launches.push_back(std::make_shared<HeldLaunch>(HeldLaunch{launch.kernel, launch.shape, CopyOf(launch.arguments)}));
    }
  }
  std::vector<std::shared_ptr<const HeldLaunch>> launches;
};

class Stream final : public DeviceStream {
 public:
  Stream(Runtime& runtime, int number) : runtime_(runtime), number_(number) {}
  ~Stream() override;
  void Copy(void* to, const void* from, size_t bytes) override;
  void Fill(void* to, uint8_t value, size_t bytes) override;
  void Launch(const Kernel& kernel, const LaunchShape& shape, std::span<const std::byte> arguments) override;
  void LaunchAll(LaunchGraph& graph) override;
  void Multiply(const HalfProduct& product) override;
  void Record(ReadyEvent& event) override;
  void Await(const ReadyEvent& event) override;
  bool Idle() const override;
  absl::Status Synchronize() override;

 private:
  Runtime& runtime_;
  const int number_;
};

class Runtime final : public EmulatedRuntime {
 public:
  explicit Runtime(const RuntimeOptions& options)
      : options_(options),
        schedule_(options.seed),
        launcher_(options.seed, options.attributes.shared_bytes, options.without_barrier) {}

  const DeviceAttributes& attributes() const override { return options_.attributes; }
  absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryKind kind) override {
    if (absl::MutexLock lock(&mutex_); refuses_memory_) return ResourceExhausted("no ", bytes, " bytes: injected");
    return AllocateMemory(bytes, kind, options_.attributes.memory_bytes);
  }
  absl::StatusOr<std::unique_ptr<DeviceStream>> MakeStream() override {
    absl::MutexLock lock(&mutex_);
    return std::make_unique<Stream>(*this, schedule_.AddStream());
  }
  absl::StatusOr<std::unique_ptr<ReadyEvent>> MakeEvent() override { return std::make_unique<Event>(*this); }
  absl::StatusOr<std::unique_ptr<LaunchGraph>> MakeGraph(std::span<const KernelLaunch> launches) override {
    absl::MutexLock lock(&mutex_);
    if (refuses_memory_) return ResourceExhausted("no memory for a graph: injected");
    if (refuses_graphs_) return FailedPrecondition("no graphs: injected");
    ++launches_.graphs_made;
    return std::make_unique<Graph>(launches);
  }

  absl::Status OpenMatmul() override {
    return options_.matmul ? absl::OkStatus() : FailedPrecondition("the emulated device has no library for products of matrices");
  }

  absl::Status Wait(const ReadyEvent& event) override {
    absl::MutexLock lock(&mutex_);
    const auto& recording = static_cast<const Event&>(event).recording;
    if (Happens(OrderCall::kWait) && recording != nullptr) schedule_.RunUntil(*recording);
    return Health();
  }
  absl::Status Synchronize() override {
    absl::MutexLock lock(&mutex_);
    if (Happens(OrderCall::kWait)) schedule_.RunAll();
    return Health();
  }

  std::vector<Fault> TakeFaults() override {
    absl::MutexLock lock(&mutex_);
    return launcher_.watcher().TakeFaults();
  }
  std::map<std::string, KernelTraffic> traffic() const override {
    absl::MutexLock lock(&mutex_);
    return log_.kernels();
  }
  uint64_t calls(OrderCall call) const override {
    absl::MutexLock lock(&mutex_);
    return calls_[static_cast<int>(call)];
  }
  LaunchCounts launches() const override {
    absl::MutexLock lock(&mutex_);
    return launches_;
  }
  std::set<Place> barriers() const override {
    absl::MutexLock lock(&mutex_);
    return launcher_.barriers();
  }
  uint64_t AllocatedBytes(MemoryKind kind) const override { return emulation::AllocatedBytes(kind); }
  void FailLaunch(int launches) override {
    absl::MutexLock lock(&mutex_);
    launches_left_ = launches;
  }
  void RefuseGraphs() override {
    absl::MutexLock lock(&mutex_);
    refuses_graphs_ = true;
  }
  void RefuseMemory(bool refuse) override {
    absl::MutexLock lock(&mutex_);
    refuses_memory_ = refuse;
  }

 private:
  friend class Event;
  friend class Stream;

  absl::Status Health() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::vector<Fault>& faults = launcher_.watcher().faults();
    return faults.empty() ? absl::OkStatus() : WithLostDevice(Internal("emulated device: ", faults.front().text));
  }

  // Counts the call. Whether it is not the one that is left out.
  bool Happens(OrderCall call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const uint64_t number = calls_[static_cast<int>(call)]++;
    return !options_.without || options_.without->call != call || options_.without->number != number;
  }

  void RunLaunch(const Kernel& kernel, const LaunchShape& shape, std::span<const std::byte> arguments)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (launches_left_ && (*launches_left_)-- == 0) {
      launches_left_.reset();
      return launcher_.watcher().StreamFault(KernelName(kernel), 0, "injected");
    }
    launcher_.Run(kernel, shape, arguments, options_.watch, options_.log ? &log_ : nullptr);
  }

  // Whether a stream may touch it: all of one piece, or memory of the host alone.
  bool Reaches(const void* address, size_t bytes, const char* what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    const MemoryPiece piece = PieceAt(at);
    if (piece.Holds(at, bytes) || (piece.end == 0 && (at & kDeviceBit) == 0)) return true;
    launcher_.watcher().StreamFault(what, at, absl::StrFormat("%d bytes at %#x, which no allocation holds", bytes, at));
    return false;
  }

  // Work that writes `to`. What the bytes are from its beginning to its end is anybody's guess.
  Work Writing(void* to, size_t bytes, const char* what, std::function<void()> run) {
    const auto begin = [this, to, bytes, what]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      if (Reaches(to, bytes, what)) std::memset(OnHost(to), kPoison, bytes);
    };
    return {.run = std::move(run), .begin = begin};
  }

  const RuntimeOptions options_;
  mutable absl::Mutex mutex_;
  Schedule schedule_ ABSL_GUARDED_BY(mutex_);
  Launcher launcher_ ABSL_GUARDED_BY(mutex_);
  AccessLog log_ ABSL_GUARDED_BY(mutex_);
  std::array<uint64_t, kOrderCalls> calls_ ABSL_GUARDED_BY(mutex_) = {};
  LaunchCounts launches_ ABSL_GUARDED_BY(mutex_);
  std::optional<int> launches_left_ ABSL_GUARDED_BY(mutex_);  // before one that is a fault
  bool refuses_memory_ ABSL_GUARDED_BY(mutex_) = false;
  bool refuses_graphs_ ABSL_GUARDED_BY(mutex_) = false;
};

bool Event::Ready() const {
  absl::MutexLock lock(&runtime_.mutex_);
  if (recording == nullptr || recording->passed) return true;
  runtime_.schedule_.RunNext(recording->stream);  // so that who asks again and again is told some day
  return false;
}

Stream::~Stream() {
  absl::MutexLock lock(&runtime_.mutex_);
  runtime_.schedule_.RunAll(number_);
  runtime_.schedule_.RemoveStream(number_);
}

void Stream::Copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  Runtime& runtime = runtime_;
  const auto run = [&runtime, to, from, bytes]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (runtime.Reaches(to, bytes, "Copy") && runtime.Reaches(from, bytes, "Copy")) std::memmove(OnHost(to), OnHost(from), bytes);
  };
  absl::MutexLock lock(&runtime.mutex_);
  if (!runtime.Happens(OrderCall::kCopy)) return;
  runtime.schedule_.Enqueue(number_, runtime.Writing(to, bytes, "Copy", run));
}

void Stream::Fill(void* to, uint8_t value, size_t bytes) {
  if (bytes == 0) return;
  Runtime& runtime = runtime_;
  const auto run = [&runtime, to, value, bytes]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (runtime.Reaches(to, bytes, "Fill")) std::memset(OnHost(to), value, bytes);
  };
  absl::MutexLock lock(&runtime.mutex_);
  runtime.schedule_.Enqueue(number_, runtime.Writing(to, bytes, "Fill", run));
}

void Stream::Launch(const Kernel& kernel, const LaunchShape& shape, std::span<const std::byte> arguments) {
  Runtime& runtime = runtime_;
  const auto run = [&runtime, kernel, shape, copy = CopyOf(arguments)]()
                       ABSL_NO_THREAD_SAFETY_ANALYSIS { runtime.RunLaunch(kernel, shape, std::as_bytes(std::span(*copy))); };
  absl::MutexLock lock(&runtime.mutex_);
  ++runtime.launches_.single;
  runtime.schedule_.Enqueue(number_, {.run = run});
}

// Each launch is work of its own, so that others get on between them. Of a graph that is gone none runs.
void Stream::LaunchAll(LaunchGraph& graph) {
  Runtime& runtime = runtime_;
  absl::MutexLock lock(&runtime.mutex_);
  ++runtime.launches_.graphs;
  for (const auto& launch : static_cast<Graph&>(graph).launches) {
    const std::weak_ptr<const HeldLaunch> held = launch;
    const auto run = [&runtime, held]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      const std::shared_ptr<const HeldLaunch> own = held.lock();
      if (own == nullptr) return runtime.launcher_.watcher().StreamFault("LaunchAll", 0, "a graph that is gone");
      runtime.RunLaunch(own->kernel, own->shape, std::as_bytes(std::span(*own->arguments)));
    };
    runtime.schedule_.Enqueue(number_, {.run = run});
  }
}

void Stream::Multiply(const HalfProduct& product) {
  Runtime& runtime = runtime_;
  const size_t rows = product.rows, columns = product.columns, inner = product.inner;
  const size_t bytes = rows * columns * sizeof(float);
  const auto run = [&runtime, product, rows, columns, inner, bytes]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!runtime.Reaches(product.a, rows * inner * sizeof(uint16_t), "Multiply") ||
        !runtime.Reaches(product.b, columns * inner * sizeof(uint16_t), "Multiply") ||
        !runtime.Reaches(product.c, bytes, "Multiply")) {
      return;
    }
    MultiplyHalves({OnHost(product.a), OnHost(product.b), OnHost(product.c), product.rows, product.columns, product.inner});
  };
  absl::MutexLock lock(&runtime.mutex_);
  ++runtime.launches_.matmuls;
  runtime.schedule_.Enqueue(number_, runtime.Writing(product.c, bytes, "Multiply", run));
}

void Stream::Record(ReadyEvent& event) {
  absl::MutexLock lock(&runtime_.mutex_);
  if (!runtime_.Happens(OrderCall::kRecord)) return;
  auto recording = std::make_shared<Recording>(Recording{.stream = number_});
  static_cast<Event&>(event).recording = recording;
  runtime_.schedule_.Enqueue(number_, {.passes = recording});
}

void Stream::Await(const ReadyEvent& event) {
  absl::MutexLock lock(&runtime_.mutex_);
  if (!runtime_.Happens(OrderCall::kAwait)) return;
  runtime_.schedule_.Enqueue(number_, {.awaits = static_cast<const Event&>(event).recording});
}

bool Stream::Idle() const {
  absl::MutexLock lock(&runtime_.mutex_);
  if (runtime_.schedule_.Idle(number_)) return true;
  runtime_.schedule_.RunNext(number_);  // so that who asks again and again is told some day
  return false;
}

absl::Status Stream::Synchronize() {
  absl::MutexLock lock(&runtime_.mutex_);
  if (runtime_.Happens(OrderCall::kWait)) runtime_.schedule_.RunAll(number_);
  return runtime_.Health();
}

}  // namespace

std::unique_ptr<EmulatedRuntime> MakeEmulatedRuntime(const RuntimeOptions& options) { return std::make_unique<Runtime>(options); }

}  // namespace moed::emulation
