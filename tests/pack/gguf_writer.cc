#include "tests/pack/gguf_writer.h"

#include <algorithm>

namespace moed {

std::string GgufString(std::string_view text) { return Little<uint64_t>(text.size()) + std::string(text); }

TestGguf& TestGguf::Add(std::string key, uint32_t type, std::string value) {
  keys.emplace_back(std::move(key), Little(type) + value);
  return *this;
}

TestGguf& TestGguf::Strings(std::string key, const std::vector<std::string>& values) {
  std::string bytes = Little<uint32_t>(8) + Little<uint64_t>(values.size());
  for (const std::string& value : values) bytes += GgufString(value);
  return Add(std::move(key), 9, std::move(bytes));
}

TestGguf& TestGguf::I32s(std::string key, const std::vector<int32_t>& values) {
  std::string bytes = Little<uint32_t>(5) + Little<uint64_t>(values.size());
  for (const int32_t value : values) bytes += Little(value);
  return Add(std::move(key), 9, std::move(bytes));
}

TestGguf& TestGguf::F32s(std::string key, const std::vector<float>& values) {
  std::string bytes = Little<uint32_t>(6) + Little<uint64_t>(values.size());
  for (const float value : values) bytes += Little(value);
  return Add(std::move(key), 9, std::move(bytes));
}

void TestGguf::Remove(std::string_view key) {
  std::erase_if(keys, [&](const auto& entry) { return entry.first == key; });
}

std::string TestGguf::Bytes() const {
  std::string header = "GGUF" + Little(version) + Little<uint64_t>(tensor_count.value_or(tensors.size())) +
                       Little<uint64_t>(key_count.value_or(keys.size()));
  for (const auto& [key, value] : keys) header += GgufString(key) + value;
  std::string data;
  for (const Tensor& tensor : tensors) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    header += GgufString(tensor.name) + Little<uint32_t>(static_cast<uint32_t>(tensor.extents.size()));
    for (const uint64_t extent : tensor.extents) header += Little(extent);
    header += Little(tensor.type) + Little<uint64_t>(tensor.offset.value_or(data.size()));
    data += tensor.data;
  }
  header.resize((header.size() + alignment - 1) / alignment * alignment);
  return header + data;
}

}  // namespace moed
