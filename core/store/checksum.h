// XXH3-64 (seed 0), the checksum of everything in a store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace moed {

uint64_t Checksum(std::span<const std::byte> bytes);
uint64_t Checksum(std::string_view bytes);

// The same value piece by piece. Movable, not synchronised.
class ChecksumStream {
 public:
  ChecksumStream();
  ~ChecksumStream();
  ChecksumStream(ChecksumStream&&) noexcept;
  ChecksumStream& operator=(ChecksumStream&&) noexcept;

  void Update(std::span<const std::byte> bytes);
  uint64_t Value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moed
