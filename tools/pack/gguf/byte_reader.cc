#include "tools/pack/gguf/byte_reader.h"

#include <algorithm>

namespace moed {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

}  // namespace

absl::Status ByteReader::Need(size_t bytes, std::string_view field) {
  if (buffer_.size() - at_ >= bytes) return absl::OkStatus();
  if (bytes > left()) {
    return InvalidArgument(field, " at byte ", position(), " needs ", bytes, " bytes, the file has ", left(), " more");
  }
  begin_ = position();
  at_ = 0;
  buffer_.resize(std::min<uint64_t>(kChunkBytes, left()));
  return file_.ReadAt(begin_, buffer_);
}

absl::StatusOr<std::string> ByteReader::String(std::string_view field, uint64_t most) {
  MOED_ASSIGN_OR_RETURN(const uint64_t length, Number<uint64_t>(StrCat("the length of ", field)));
  if (length > left() || length > most) {
    return InvalidArgument("the length of ", field, " at byte ", position() - sizeof length, " is ", length,
                           ", allowed: at most ", std::min(most, left()));
  }
  std::string text;
  text.reserve(length);
  while (text.size() < length) {
    const size_t part = std::min<size_t>(length - text.size(), kChunkBytes / 2);
    MOED_RETURN_IF_ERROR(Need(part, field));
    text.append(reinterpret_cast<const char*>(buffer_.data() + at_), part);
    at_ += part;
  }
  return text;
}

}  // namespace moed
