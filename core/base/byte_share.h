// Memory planned for many, of which each holds what it needs for as long as it needs it.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace moed {

// Thread-safe.
class ByteShare {
 public:
  // Bytes of the share, given back when this ends; the share outlives it.
  class Held {
   public:
    Held() = default;
    Held(Held&& other) noexcept : share_(std::exchange(other.share_, nullptr)), bytes_(other.bytes_) {}
    Held& operator=(Held other) noexcept {
      std::swap(share_, other.share_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Held() {
      if (share_ != nullptr) share_->taken_ -= bytes_;
    }
    explicit operator bool() const { return share_ != nullptr; }

   private:
    friend ByteShare;
    Held(ByteShare& share, uint64_t bytes) : share_(&share), bytes_(bytes) {}

    ByteShare* share_ = nullptr;
    uint64_t bytes_ = 0;
  };

  explicit ByteShare(uint64_t most) : most_(most) {}

  uint64_t most() const { return most_; }
  uint64_t left() const { return most_ - taken_; }
  // False: others hold too much.
  Held Take(uint64_t bytes) {
    uint64_t taken = taken_;
    do {
      if (bytes > most_ - taken) return {};
    } while (!taken_.compare_exchange_weak(taken, taken + bytes));
    return {*this, bytes};
  }

 private:
  const uint64_t most_;
  std::atomic<uint64_t> taken_{0};
};

}  // namespace moed
