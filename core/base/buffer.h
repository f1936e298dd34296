// Memory by kind. Host memory comes page-aligned straight from the kernel, so that what is freed leaves the process (the memory
// budget is a contract over resident bytes, and malloc keeps what it was given back).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

namespace moed {

inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kLargePageBytes = 2 << 20;

constexpr uint64_t DivideUp(uint64_t value, uint64_t by) { return (value + by - 1) / by; }
constexpr size_t RoundUp(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Who may touch a piece of memory.
enum class MemoryKind : uint8_t {
  kHost,     // this process; a device only through a copy
  kPinned,   // this process, and a device reads it where it is: its pages never move
  kDevice,   // a device alone: the host must not follow the pointer
  kManaged,  // both: their driver moves pages to where they are touched
};

// Owns one piece of memory and returns it on destruction the way its kind asks for. Movable. Not synchronised.
class Buffer {
 public:
  using Deleter = void (*)(std::byte* data, size_t bytes);

  Buffer() = default;
  ~Buffer() { Reset(); }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      Reset();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      deleter_ = std::exchange(other.deleter_, nullptr);
      kind_ = std::exchange(other.kind_, MemoryKind::kHost);
    }
    return *this;
  }

  // Host memory: one anonymous mapping, zero-filled, 4 KiB-aligned (fit for O_DIRECT), returned to the kernel at the end. One of
  // at least a large page begins at a multiple of it and asks for large pages: walks through page tables cost read bandwidth.
  // RESOURCE_EXHAUSTED when the kernel refuses. `bytes` is rounded up to whole pages. Pages count as resident once touched.
  static absl::StatusOr<Buffer> Allocate(size_t bytes);
  // Takes over memory that another allocator gave; `deleter` is called once, with the same arguments, unless `data` is null.
  static Buffer Adopt(std::byte* data, size_t bytes, MemoryKind kind, Deleter deleter) { return {data, bytes, kind, deleter}; }

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  MemoryKind kind() const { return kind_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  Buffer(std::byte* data, size_t bytes, MemoryKind kind, Deleter deleter)
      : data_(data), bytes_(bytes), deleter_(deleter), kind_(kind) {}
  void Reset();

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Deleter deleter_ = nullptr;
  MemoryKind kind_ = MemoryKind::kHost;
};

// Where buffers come from; a device tier brings its own.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual absl::StatusOr<Buffer> Allocate(size_t bytes) = 0;

  static Allocator& Host();
};

// Carves typed arrays out of one Buffer in order; used for scratch whose size was planned up front.
class Arena {
 public:
  explicit Arena(std::span<std::byte> storage) : storage_(storage) {}

  // 64-byte aligned. CHECK-fails when the plan was too small: sizes are ours, never input.
  template <class T>
  std::span<T> Take(size_t count) {
    return {reinterpret_cast<T*>(TakeBytes(count * sizeof(T))), count};
  }
  std::byte* TakeBytes(size_t bytes);
  static constexpr size_t Rounded(size_t bytes) { return RoundUp(bytes, 64); }

 private:
  std::span<std::byte> storage_;
  size_t used_ = 0;
};

}  // namespace moed
