// What ends the process may hang itself: a disk that does not answer, a call that never ends.
#pragma once

#include <functional>
#include <string_view>

#include "absl/time/time.h"

namespace moed {

inline constexpr absl::Duration kDiskLimit = absl::Seconds(120);  // for a read or write to end

// Returns when `end`, on a thread of its own, has. When it has not after `limit` the process ends with 1, and the log says `why`.
// Where no thread can be made, `end` runs on this one, for as long as it takes.
void EndWithin(absl::Duration limit, std::string_view why, std::function<void()> end);

// What may be done for an end that takes longer than `patience`, on the thread that waits for it.
struct Hurry {
  absl::Duration patience;
  std::function<void()> hurry;
};
void EndWithin(absl::Duration limit, std::string_view why, std::function<void()> end, const Hurry& hurry);

}  // namespace moed
