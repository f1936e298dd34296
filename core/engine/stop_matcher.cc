#include "core/engine/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace moed {

std::string StopMatcher::Push(std::string_view piece, bool may_match) {
  if (matched()) return "";
  const size_t searched = pending_.size() + (may_match ? 0 : piece.size());
  pending_ += piece;
  for (size_t end = searched + 1; end <= pending_.size(); ++end) {
    match_ = LongestEndingAt(end);
    if (!matched()) continue;
    pending_.resize(include_ ? end : end - match().size());
    return std::exchange(pending_, "");
  }
  const size_t held = HeldBytes();
  std::string released = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, released.size());
  return released;
}

std::string StopMatcher::Flush() { return std::exchange(pending_, ""); }

int StopMatcher::LongestEndingAt(size_t end) const {
  const std::string_view text(pending_.data(), end);
  int longest = -1;
  for (size_t i = 0; i < stop_strings_.size(); ++i) {
    if (!text.ends_with(stop_strings_[i])) continue;
    if (longest < 0 || stop_strings_[i].size() > stop_strings_[longest].size()) longest = static_cast<int>(i);
  }
  return longest;
}

size_t StopMatcher::HeldBytes() const {
  size_t held = 0;
  for (const std::string& stop : stop_strings_) {
    for (size_t length = std::min(stop.size() - 1, pending_.size()); length > held; --length) {
      if (pending_.ends_with(std::string_view(stop).substr(0, length))) held = length;
    }
  }
  return held;
}

}  // namespace moed
