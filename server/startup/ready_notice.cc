#include "server/startup/ready_notice.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "core/base/status.h"

namespace moed {

absl::Status SendReadyNotice() {
  constexpr std::string_view kReady = "READY=1";
  const char* variable = std::getenv("NOTIFY_SOCKET");
  if (variable == nullptr) return absl::OkStatus();
  const std::string_view path = variable;
  sockaddr_un address{.sun_family = AF_UNIX};
  if (path.size() >= sizeof(address.sun_path)) return InvalidArgument("NOTIFY_SOCKET: ", path, " is too long for a socket");
  path.copy(address.sun_path, path.size());
  if (path.starts_with('@')) address.sun_path[0] = '\0';  // of the abstract namespace
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  absl::Status status;
  if (fd < 0 || sendto(fd, kReady.data(), kReady.size(), 0, reinterpret_cast<const sockaddr*>(&address), length) < 0) {
    status = ErrnoError(errno, "NOTIFY_SOCKET: ", path);
  }
  if (fd >= 0) close(fd);
  return status;
}

}  // namespace moed
