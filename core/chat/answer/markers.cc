#include "core/chat/answer/markers.h"

#include <algorithm>
#include <utility>

namespace moed::chat {

bool IsMarkerSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

MarkerScanner::MarkerScanner(std::vector<std::string_view> markers, bool with_space)
    : markers_(std::move(markers)), with_space_(with_space) {}

int MarkerScanner::Put(char c, std::string& text) {
  held_ += c;
  for (;;) {
    bool possible = held_.empty();
    const int marker = Match(possible);
    if (marker != kNone) {
      found_ = Take();
      return marker;
    }
    if (possible && held_.size() <= kMostHeldBytes) return kNone;
    text += held_.front();
    held_.erase(0, 1);
  }
}

void MarkerScanner::DropBegun() {
  if (!std::ranges::all_of(held_, IsMarkerSpace)) held_.clear();
}

int MarkerScanner::Match(bool& possible) const {
  std::string_view rest = held_;
  while (with_space_ && !rest.empty() && IsMarkerSpace(rest.front())) rest.remove_prefix(1);
  for (size_t i = 0; i < markers_.size(); ++i) {
    if (rest == markers_[i]) return static_cast<int>(i);
    possible |= markers_[i].substr(0, rest.size()) == rest;
  }
  return kNone;
}

int Choice::Put(char c) {
  if (seen_.empty() && IsMarkerSpace(c)) return kMore;
  seen_ += c;
  bool possible = false;
  for (size_t i = 0; i < literals_.size(); ++i) {
    if (seen_ == literals_[i]) return static_cast<int>(i);
    possible |= literals_[i].substr(0, seen_.size()) == seen_;
  }
  return possible ? kMore : kNone;
}

}  // namespace moed::chat
