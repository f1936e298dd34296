// Markers in text that comes byte by byte.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moed::chat {

bool IsMarkerSpace(char c);  // ' ', '\t', '\n', '\r'

// Text up to one of some markers, none of which begins with another.
class MarkerScanner {
 public:
  static constexpr size_t kMostHeldBytes = 1024;  // white space and a marker; beyond it, it is text
  // `with_space`: white space before a marker belongs to it.
  explicit MarkerScanner(std::vector<std::string_view> markers = {}, bool with_space = false);
  // From the next byte on; what is held back stays.
  void SetMarkers(std::vector<std::string_view> markers) { markers_ = std::move(markers); }

  static constexpr int kNone = -1;
  // The number of the marker that this byte ends, found() being its text; appends to `text` what can no longer be of a marker.
  int Put(char c, std::string& text);
  const std::string& found() const { return found_; }  // with its white space
  std::string Take() { return std::exchange(held_, {}); }
  // A marker that has begun; white space alone is none.
  void DropBegun();

 private:
  int Match(bool& possible) const;

  std::vector<std::string_view> markers_;
  bool with_space_;
  std::string held_;
  std::string found_;
};

// One of some literals and nothing else, none of which begins with another. White space before it is skipped.
class Choice {
 public:
  explicit Choice(std::vector<std::string_view> literals = {}) : literals_(std::move(literals)) {}

  static constexpr int kMore = -1;
  static constexpr int kNone = -2;
  // The number of the literal that this byte ends.
  int Put(char c);

 private:
  std::vector<std::string_view> literals_;
  std::string seen_;
};

}  // namespace moed::chat
