#include "server/startup/limited_end.h"

#include <unistd.h>

#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "core/base/timed_wait.h"
#include "spdlog/spdlog.h"

namespace moed {

void EndWithin(absl::Duration limit, std::string_view why, std::function<void()> end) {
  EndWithin(limit, why, std::move(end), {absl::ZeroDuration(), [] {}});
}

void EndWithin(absl::Duration limit, std::string_view why, std::function<void()> end, const Hurry& hurry) {
  std::promise<void> done;
  std::thread ending;
  try {
    ending = std::thread([&] {
      end();
      done.set_value();
    });
  } catch (const std::system_error&) {  // no thread is left for it
    return end();
  }
  const std::future<void> ended = done.get_future();
  const auto ends_within = [&](absl::Duration time) { return ended.wait_for(WaitOf(time)) == std::future_status::ready; };
  if (!ends_within(hurry.patience)) hurry.hurry();
  if (!ends_within(limit - hurry.patience)) {
    spdlog::critical("{}: ending without it", why);
    spdlog::default_logger()->flush();
    _exit(1);
  }
  ending.join();
}

}  // namespace moed
