// The little-endian numbers and strings of a file from its start on, by bounded reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/status.h"
#include "core/io/file.h"

namespace moed {

// Errors name the field that was to be read. Not synchronised.
class ByteReader {
 public:
  explicit ByteReader(const RandomAccessFile& file) : file_(file) {}

  uint64_t position() const { return begin_ + at_; }
  uint64_t left() const { return file_.size() - position(); }

  template <class T>
  absl::StatusOr<T> Number(std::string_view field) {
    MOED_RETURN_IF_ERROR(Need(sizeof(T), field));
    T value;
    std::memcpy(&value, buffer_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  // u64 length, then that many bytes, at most `most`.
  absl::StatusOr<std::string> String(std::string_view field, uint64_t most);

 private:
  // The next `bytes`, at most a chunk, are in the buffer.
  absl::Status Need(size_t bytes, std::string_view field);

  const RandomAccessFile& file_;
  std::vector<std::byte> buffer_;
  uint64_t begin_ = 0;  // of the buffer, in the file
  size_t at_ = 0;       // in the buffer
};

}  // namespace moed
