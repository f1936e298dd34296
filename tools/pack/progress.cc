#include "tools/pack/progress.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/base/status.h"
#include "tools/pack/amount.h"

namespace moed {
namespace {

constexpr double kTerminalSeconds = 0.1;
constexpr double kPlainSeconds = 5.0;

}  // namespace

Progress::Progress(std::string verb, uint64_t total_bytes, uint64_t start_bytes, std::FILE* out, const Clock& clock)
    : verb_(std::move(verb)),
      total_bytes_(total_bytes),
      start_bytes_(start_bytes),
      out_(out),
      clock_(clock),
      terminal_(isatty(fileno(out)) == 1),
      begin_nanos_(clock.NowNanos()),
      last_print_nanos_(begin_nanos_),
      done_bytes_(start_bytes) {}

std::string Progress::Line() const {
  const double seconds = SecondsBetween(begin_nanos_, clock_.NowNanos());
  const double rate = seconds > 0 ? static_cast<double>(done_bytes_ - start_bytes_) / seconds : 0;
  std::string line =
      StrCat(verb_, " ", BytesText(static_cast<double>(done_bytes_)), " of ", BytesText(static_cast<double>(total_bytes_)), " (",
             total_bytes_ > 0 ? done_bytes_ * 100 / total_bytes_ : 100, " %)");
  if (rate > 0) {
    line += StrCat(", ", BytesText(rate), "/s, ", SecondsText(static_cast<double>(total_bytes_ - done_bytes_) / rate), " left");
  }
  return line;
}

void Progress::Update(uint64_t done_bytes) {
  done_bytes_ = std::min(done_bytes, total_bytes_);
  const int64_t now = clock_.NowNanos();
  if (SecondsBetween(last_print_nanos_, now) < (terminal_ ? kTerminalSeconds : kPlainSeconds)) return;
  last_print_nanos_ = now;
  std::fprintf(out_, terminal_ ? "\r%s\x1b[K" : "%s\n", Line().c_str());
  std::fflush(out_);
  line_open_ = terminal_;
}

void Progress::Finish() {
  const double seconds = SecondsBetween(begin_nanos_, clock_.NowNanos());
  const double bytes = static_cast<double>(total_bytes_ - start_bytes_);
  std::fprintf(out_, "%s%s %s in %.1f s (%s/s)%s\n", terminal_ ? "\r" : "", verb_.c_str(), BytesText(bytes).c_str(), seconds,
               BytesText(seconds > 0 ? bytes / seconds : 0).c_str(), terminal_ ? "\x1b[K" : "");
  line_open_ = false;
}

void Progress::Break() {
  if (line_open_) std::fputc('\n', out_);
  line_open_ = false;
}

}  // namespace moed
