// What says what to do (jobs, rows, pages) as a device reads it: copied where it stays until the work that reads it has run.
#pragma once

#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "core/kernels/cuda/runtime.h"

namespace moed {

class Descriptions {
 public:
  explicit Descriptions(DeviceRuntime& runtime) : runtime_(runtime) {}

  // `count` of them for the caller to write at once. The device reads them at the same address.
  template <class T>
  T* Take(size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    return reinterpret_cast<T*>(TakeBytes(count * sizeof(T)));
  }
  template <class T>
  const T* Copy(std::span<const T> numbers) {
    T* const copy = Take<T>(numbers.size());
    if (!numbers.empty()) std::memcpy(copy, numbers.data(), numbers.size_bytes());
    return copy;
  }
  // RESOURCE_EXHAUSTED where the device had no memory for what was taken: it is the host's alone.
  const absl::Status& status() const { return status_; }
  // All that read them has run. Forgets an error. What is taken from here on has the addresses that the same sizes had before,
  // once there was room for all between two calls.
  void Clear();

 private:
  static constexpr size_t kAlignment = 256;  // so that a list which grows by little moves no other
  std::byte* TakeBytes(size_t bytes);

  DeviceRuntime& runtime_;
  std::vector<Buffer> buffers_;  // the last one is being filled
  size_t used_ = 0;              // of it
  absl::Status status_;
};

}  // namespace moed
