// GGUF files for tests, good ones and broken ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moed {

// Numbers as the file has them.
template <class T>
std::string Little(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
// u64 length, then the text.
std::string GgufString(std::string_view text);

struct TestGguf {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> extents;  // as the file has them: columns first
    uint32_t type = 0;
    std::string data;
    std::optional<uint64_t> offset;  // one that is wrong
  };

  uint32_t version = 3;
  std::optional<uint64_t> key_count, tensor_count;        // ones that are wrong
  std::vector<std::pair<std::string, std::string>> keys;  // name; type and value as bytes
  std::vector<Tensor> tensors;
  uint64_t alignment = 32;

  TestGguf& Add(std::string key, uint32_t type, std::string value);
  TestGguf& U32(std::string key, uint32_t value) { return Add(std::move(key), 4, Little(value)); }
  TestGguf& F32(std::string key, float value) { return Add(std::move(key), 6, Little(value)); }
  TestGguf& Bool(std::string key, bool value) { return Add(std::move(key), 7, Little<uint8_t>(value)); }
  TestGguf& String(std::string key, std::string_view value) { return Add(std::move(key), 8, GgufString(value)); }
  TestGguf& Strings(std::string key, const std::vector<std::string>& values);
  TestGguf& I32s(std::string key, const std::vector<int32_t>& values);
  TestGguf& F32s(std::string key, const std::vector<float>& values);
  void Remove(std::string_view key);

  std::string Bytes() const;
};

}  // namespace moed
