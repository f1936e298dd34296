#include "tools/terminal/amount.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace moed {

std::string CountText(double count) {
  char text[32];
  std::snprintf(text, sizeof text, count == std::floor(count) ? "%.0f" : "%.2g", count);
  return text;
}

std::string SecondsText(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(std::clamp(seconds, 0.0, 1e9)));
  char text[48];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", static_cast<long long>(whole / 3600),
                  static_cast<long long>(whole / 60 % 60), static_cast<long long>(whole % 60));
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", static_cast<long long>(whole / 60), static_cast<long long>(whole % 60));
  }
  return text;
}

std::string Grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

}  // namespace moed
