#include "core/chat/marked_text.h"

#include <algorithm>

namespace moed::chat {

MarkedText MarkedText::Whole(std::string text, bool foreign) {
  MarkedText out{std::move(text), {}};
  if (foreign && !out.text.empty()) out.foreign = {{0, out.text.size()}};
  return out;
}

void MarkedText::AppendRange(std::string_view from, const ByteRanges& of_from, size_t begin, size_t end) {
  const size_t at = text.size();
  text += from.substr(begin, end - begin);
  auto range = std::ranges::upper_bound(of_from, begin, {}, &ByteRange::end);
  for (; range != of_from.end() && range->begin < end; ++range) {
    const ByteRange moved = {at + std::max(range->begin, begin) - begin, at + std::min(range->end, end) - begin};
    if (!foreign.empty() && foreign.back().end == moved.begin) {
      foreign.back().end = moved.end;
    } else {
      foreign.push_back(moved);
    }
  }
}

}  // namespace moed::chat
