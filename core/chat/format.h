// Python's two ways to fill values into a text. The result is foreign as a whole where the text or a value is in part.
#pragma once

#include "absl/status/statusor.h"
#include "core/chat/iterator.h"
#include "core/chat/value.h"

namespace moed::chat {

class Run;

// "%s is %d" % (a, b)
absl::StatusOr<Value> FormatPercent(Run& run, const Value& text, const Value& values);
// "{} is {0:>5}".format(a)
absl::StatusOr<Value> FormatBraces(Run& run, const Value& text, const Call& values);

// How one value is written: [[fill]align][sign][#][0][width][grouping][.precision][type].
struct FieldFormat {
  std::string fill = " ";
  char align = 0;  // < > ^ = or none
  char sign = '-';
  bool alternate = false;
  int width = 0;
  char grouping = 0;
  int precision = -1;
  char type = 0;
};
std::string WriteWhole(Integer value, const FieldFormat& format);
std::string WriteFloat(double value, const FieldFormat& format);  // inf and nan too
std::string Padded(std::string_view text, const FieldFormat& format, char align);

inline constexpr int kMostWidth = 1 << 20;  // of a field, and of what follows its point at most 400

}  // namespace moed::chat
