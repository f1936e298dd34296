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
  if (done.get_future().wait_for(WaitOf(limit)) != std::future_status::ready) {
    spdlog::critical("{}: ending without it", why);
    spdlog::default_logger()->flush();
    _exit(1);
  }
  ending.join();
}

}  // namespace moed
