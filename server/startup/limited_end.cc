#include "server/startup/limited_end.h"

#include <unistd.h>

#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "spdlog/spdlog.h"

namespace moed {

void EndWithin(absl::Duration limit, std::string_view why, std::function<void()> end) {
  absl::Notification done;
  std::thread ending([&] {
    end();
    done.Notify();
  });
  if (!done.WaitForNotificationWithTimeout(limit)) {
    spdlog::critical("{}: ending without it", why);
    spdlog::default_logger()->flush();
    _exit(1);
  }
  ending.join();
}

}  // namespace moed
