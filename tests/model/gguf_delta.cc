#include "tests/model/gguf_delta.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace moed {
namespace {

enum Operation : uint64_t { kLiteral, kCopy, kWiden };

uint64_t Fnv1a(std::string_view bytes) {
  uint64_t value = 0xcbf29ce484222325;
  for (const unsigned char byte : bytes) value = (value ^ byte) * 0x100000001b3;
  return value;
}

std::string_view Take(std::string_view& bytes, size_t count) {
  EXPECT_LE(count, bytes.size());
  const std::string_view taken = bytes.substr(0, count);
  bytes.remove_prefix(taken.size());
  return taken;
}

uint64_t TakeVarint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(Take(bytes, 1).at(0));
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) break;
  }
  return value;
}

int64_t TakeZigzag(std::string_view& bytes) {
  const uint64_t value = TakeVarint(bytes);
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

}  // namespace

std::string ApplyGgufDelta(std::string_view delta, std::string_view safetensors) {
  uint64_t expected;
  std::memcpy(&expected, Take(delta, sizeof expected).data(), sizeof expected);
  std::string gguf;
  int64_t at = 0;  // in the safetensors file
  while (!delta.empty()) {
    const uint64_t operation = TakeVarint(delta), count = operation / 4;
    if (operation % 4 == kLiteral) {
      gguf += Take(delta, count);
      continue;
    }
    const bool widen = operation % 4 == kWiden;
    at += TakeZigzag(delta);
    const std::string_view source = safetensors.substr(at, widen ? 2 * count : count);
    at += static_cast<int64_t>(source.size());
    if (!widen) gguf += source;
    for (size_t i = 0; widen && i < source.size(); i += 2) gguf.append(2, '\0').append(source.substr(i, 2));
  }
  EXPECT_EQ(Fnv1a(gguf), expected) << "not the converter's file";
  return gguf;
}

}  // namespace moed
