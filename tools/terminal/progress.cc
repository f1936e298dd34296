#include "tools/terminal/progress.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "tools/terminal/amount.h"

namespace moed {
namespace {

constexpr double kTerminalSeconds = 0.1;
constexpr double kPlainSeconds = 5.0;

}  // namespace

Progress::Progress(std::string verb, uint64_t total, uint64_t start, std::FILE* out, const Clock& clock, AmountText amount)
    : verb_(std::move(verb)),
      total_(total),
      start_(start),
      out_(out),
      clock_(clock),
      amount_(amount),
      terminal_(isatty(fileno(out)) == 1),
      begin_nanos_(clock.NowNanos()),
      last_print_nanos_(begin_nanos_),
      done_(start) {}

std::string Progress::Bytes(double amount) { return FormatBytes(static_cast<uint64_t>(amount)); }

std::string Progress::Line() const {
  const double seconds = SecondsBetween(begin_nanos_, clock_.NowNanos());
  const double rate = seconds > 0 ? static_cast<double>(done_ - start_) / seconds : 0;
  std::string line = StrCat(verb_, " ", amount_(static_cast<double>(done_)), " of ", amount_(static_cast<double>(total_)), " (",
                            total_ > 0 ? done_ * 100 / total_ : 100, " %)");
  if (rate > 0) {
    line += StrCat(", ", amount_(rate), "/s, ", SecondsText(static_cast<double>(total_ - done_) / rate), " left");
  }
  return line;
}

void Progress::Update(uint64_t done) {
  done_ = std::min(done, total_);
  const int64_t now = clock_.NowNanos();
  if (SecondsBetween(last_print_nanos_, now) < (terminal_ ? kTerminalSeconds : kPlainSeconds)) return;
  last_print_nanos_ = now;
  std::fprintf(out_, terminal_ ? "\r%s\x1b[K" : "%s\n", Line().c_str());
  std::fflush(out_);
  line_open_ = terminal_;
}

void Progress::Finish() {
  const double seconds = SecondsBetween(begin_nanos_, clock_.NowNanos());
  const double amount = static_cast<double>(total_ - start_);
  std::fprintf(out_, "%s%s %s in %.1f s (%s/s)%s\n", terminal_ ? "\r" : "", verb_.c_str(), amount_(amount).c_str(), seconds,
               amount_(seconds > 0 ? amount / seconds : 0).c_str(), terminal_ ? "\x1b[K" : "");
  line_open_ = false;
}

void Progress::Break() {
  if (line_open_) std::fputc('\n', out_);
  line_open_ = false;
}

}  // namespace moed
