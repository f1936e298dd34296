// What says what to do (jobs, rows, pages) as a device reads it: it stays until the work that reads it has run. Where the device
// has memory of its own it lies there, since kernels would wait for each word of the host's memory; the host writes it in pinned
// memory, and one copy brings all that is new.
#pragma once

#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "core/kernels/cuda/runtime.h"

namespace moed {

// Where the host writes something and where the device has it: one address where memory is unified.
template <class T>
struct Described {
  T* host;
  T* device;
};

class Descriptions {
 public:
  explicit Descriptions(DeviceRuntime& runtime) : runtime_(runtime) {}

  // `count` of them for the caller to write at once, before the next Flush. What the host does not write kernels may.
  template <class T>
  Described<T> Take(size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    const Described<std::byte> bytes = TakeBytes(count * sizeof(T));
    return {reinterpret_cast<T*>(bytes.host), reinterpret_cast<T*>(bytes.device)};
  }
  // The device's.
  template <class T>
  const T* Copy(std::span<const T> numbers) {
    const Described<T> copy = Take<T>(numbers.size());
    if (!numbers.empty()) std::memcpy(copy.host, numbers.data(), numbers.size_bytes());
    return copy.device;
  }
  // Before work that reads what was taken: what was since the last time is copied, if it lies elsewhere.
  void Flush(DeviceStream& stream);
  // RESOURCE_EXHAUSTED where the device had no memory for what was taken: it is the host's alone.
  const absl::Status& status() const { return status_; }
  // All that read them has run. Forgets an error. What is taken from here on has the addresses that the same sizes had before,
  // once there was room for all between two calls.
  void Clear();

 private:
  static constexpr size_t kAlignment = 256;  // so that a list which grows by little moves no other
  struct Piece {
    Buffer host;
    Buffer device;  // of the same size; none: the host's is the device's, or nobody's
    size_t used = 0;
    size_t flushed = 0;
  };
  Described<std::byte> TakeBytes(size_t bytes);
  absl::Status Allocate(size_t bytes, Piece& piece);

  DeviceRuntime& runtime_;
  std::vector<Piece> pieces_;  // the last one is being filled
  absl::Status status_;
};

}  // namespace moed
