#include "server/wire/own_sockets.h"

#include <dirent.h>
#include <sys/un.h>

#include <atomic>
#include <cstdlib>

#include "absl/base/const_init.h"
#include "absl/synchronization/mutex.h"
#include "server/wire/connection_bytes.h"

namespace moed {
namespace {

std::atomic<uint64_t> ended_connections{0};

}  // namespace

in_port_t PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

Address BoundTo(int descriptor) {
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return {};
  if (bound.ss_family == AF_UNIX) return {.path = reinterpret_cast<const sockaddr_un&>(bound).sun_path};
  return {.port = PortOf(bound)};
}

void EndConnection(int descriptor) {
  const sa_family_t nobody = AF_UNSPEC;
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&nobody), sizeof(nobody)) != 0) {  // a unix socket
    shutdown(descriptor, SHUT_RDWR);
    char unread[4096];
    while (recv(descriptor, unread, sizeof(unread), MSG_DONTWAIT) > 0) continue;
  }
  DropConnection(descriptor);
  ++ended_connections;
}

uint64_t EndedConnections() { return ended_connections; }

void ForEachSocketOf(const Address& address, const std::function<void(int descriptor)>& visit) {
  static absl::Mutex mutex(absl::kConstInit);
  static DIR* folder = nullptr;  // stays open: descriptors may be short when it is needed most
  absl::MutexLock lock(&mutex);
  if (folder == nullptr) folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  rewinddir(folder);
  while (const dirent* entry = readdir(folder)) {
    const int descriptor = std::atoi(entry->d_name);
    const Address bound = BoundTo(descriptor);
    if (bound.port == address.port && bound.path == address.path) visit(descriptor);
  }
}

}  // namespace moed
