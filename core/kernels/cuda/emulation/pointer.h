// Pointers to memory that threads share. Each load and each store goes through emulation::Read and emulation::Write.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/kernels/cuda/emulation/device_address.h"
#include "core/kernels/cuda/emulation/thread.h"

namespace moed {
namespace emulation {

template <Space kSpace>
[[gnu::always_inline]] inline void* HostAddress(uintptr_t address) {
  if constexpr (kSpace == Space::kShared) return running.shared + address;
  return reinterpret_cast<void*>(address & ~kDeviceBit);
}

template <Space kSpace, class T>
[[gnu::always_inline]] inline T Read(uintptr_t address, bool once = false) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  if (running.watched && !Permit({address, sizeof(T), alignof(T), kSpace, AccessKind::kLoad, once})) [[unlikely]] {
    std::memset(static_cast<void*>(&value), 0, sizeof(T));
  } else {
    std::memcpy(static_cast<void*>(&value), HostAddress<kSpace>(address), sizeof(T));
  }
  return value;
}

template <Space kSpace, class T>
[[gnu::always_inline]] inline void Write(uintptr_t address, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (running.watched && !Permit({address, sizeof(T), alignof(T), kSpace, AccessKind::kStore})) [[unlikely]]
    return;
  std::memcpy(HostAddress<kSpace>(address), static_cast<const void*>(&value), sizeof(T));
}

// What p[i] is where it may be written.
template <Space kSpace, class T>
class Reference {
 public:
  explicit constexpr Reference(uintptr_t address) : address_(address) {}
  [[gnu::always_inline]] operator T() const { return Read<kSpace, T>(address_); }
  [[gnu::always_inline]] const Reference& operator=(const T& value) const {
    Write<kSpace, T>(address_, value);
    return *this;
  }
  [[gnu::always_inline]] const Reference& operator=(const Reference& from) const { return *this = static_cast<T>(from); }
  Reference(const Reference&) = default;
  template <class U>
  [[gnu::always_inline]] const Reference& operator+=(const U& value) const {
    return *this = static_cast<T>(static_cast<T>(*this) + value);
  }
  template <class U>
  [[gnu::always_inline]] const Reference& operator*=(const U& value) const {
    return *this = static_cast<T>(static_cast<T>(*this) * value);
  }

 private:
  uintptr_t address_;
};

template <Space kSpace, class T>
class Pointer {
 public:
  static constexpr Space kIn = kSpace;

  constexpr Pointer() = default;
  constexpr Pointer(std::nullptr_t) {}
  Pointer(T* pointer) requires(kSpace == Space::kGlobal) : address_(reinterpret_cast<uintptr_t>(pointer)) {}
  explicit constexpr Pointer(uintptr_t address) : address_(address) {}
  // As a T* becomes a const T*.
  constexpr operator Pointer<kSpace, const T>() const requires(!std::is_const_v<T>) { return Pointer<kSpace, const T>(address_); }

  [[gnu::always_inline]] auto operator[](ptrdiff_t index) const {
    const uintptr_t place = address_ + static_cast<uintptr_t>(index) * sizeof(T);
    if constexpr (std::is_const_v<T>) {
      return Read<kSpace, std::remove_const_t<T>>(place);
    } else {
      return Reference<kSpace, T>(place);
    }
  }
  [[gnu::always_inline]] auto operator*() const { return (*this)[0]; }

  constexpr Pointer operator+(ptrdiff_t count) const { return Pointer(address_ + static_cast<uintptr_t>(count) * sizeof(T)); }
  constexpr Pointer operator-(ptrdiff_t count) const { return *this + -count; }
  constexpr Pointer& operator+=(ptrdiff_t count) { return *this = *this + count; }
  constexpr Pointer& operator-=(ptrdiff_t count) { return *this = *this - count; }
  constexpr Pointer& operator++() { return *this += 1; }
  constexpr ptrdiff_t operator-(Pointer other) const {
    return static_cast<ptrdiff_t>(address_ - other.address_) / static_cast<ptrdiff_t>(sizeof(T));
  }
  constexpr auto operator<=>(const Pointer&) const = default;
  constexpr bool operator==(const Pointer&) const = default;
  constexpr bool operator==(std::nullptr_t) const { return address_ == 0; }
  explicit constexpr operator bool() const { return address_ != 0; }
  constexpr uintptr_t address() const { return address_; }

 private:
  uintptr_t address_ = 0;
};

}  // namespace emulation

inline namespace emulated {

template <class T>
using Global = emulation::Pointer<emulation::Space::kGlobal, T>;
template <class T>
using Shared = emulation::Pointer<emulation::Space::kShared, T>;

template <class To, emulation::Space kSpace, class From>
constexpr emulation::Pointer<kSpace, To> PointerCast(emulation::Pointer<kSpace, From> pointer) {
  static_assert(std::is_const_v<To> || !std::is_const_v<From>);
  return emulation::Pointer<kSpace, To>(pointer.address());
}

template <class V, emulation::Space kSpace, class T>
[[gnu::always_inline]] inline V Load(emulation::Pointer<kSpace, T> pointer, ptrdiff_t index) {
  return emulation::Read<kSpace, V>(pointer.address() + static_cast<uintptr_t>(index) * sizeof(V));
}
template <class V, emulation::Space kSpace, class T>
[[gnu::always_inline]] inline V LoadOnce(emulation::Pointer<kSpace, T> pointer, ptrdiff_t index) {
  static_assert(kSpace == emulation::Space::kGlobal);
  return emulation::Read<kSpace, V>(pointer.address() + static_cast<uintptr_t>(index) * sizeof(V), true);
}
template <class V, emulation::Space kSpace, class T>
[[gnu::always_inline]] inline void Store(emulation::Pointer<kSpace, T> pointer, ptrdiff_t index, const V& value) {
  static_assert(!std::is_const_v<T>);
  emulation::Write<kSpace, V>(pointer.address() + static_cast<uintptr_t>(index) * sizeof(V), value);
}

template <emulation::Space kSpace, class T>
constexpr uintptr_t AddressOf(emulation::Pointer<kSpace, T> pointer) {
  return pointer.address();
}

template <class T>
Shared<T> SharedMemory(size_t byte = 0) {
  return Shared<T>(byte);
}

}  // namespace emulated
}  // namespace moed
