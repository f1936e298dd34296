#include "server/wire/own_sockets.h"

#include <dirent.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "absl/base/const_init.h"
#include "absl/synchronization/mutex.h"
#include "server/wire/connection_bytes.h"
#include "server/wire/peer_name.h"

namespace moed {
namespace {

std::atomic<uint64_t> ended_connections{0};

// None of a listener, nor of a connection that is over.
std::optional<std::string> PeerOf(int descriptor) {
  sockaddr_storage peer{};
  socklen_t length = sizeof(peer);
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return std::nullopt;
  return PeerName(peer);
}

// Whether a TCP connection is over without its own end: what it had sent can be read still, and nobody knows any more who it was.
bool WasReset(int descriptor) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  return getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_state == TCP_CLOSE;
}

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

void EndConnectionsOf(std::span<const std::string> peers, std::span<const Address> listening) {
  const auto look = [&](int descriptor) {
    const std::optional<std::string> name = PeerOf(descriptor);
    const auto is_name = [&](std::string_view peer) { return PeerName(peer) == *name; };
    if (name ? std::ranges::any_of(peers, is_name) : WasReset(descriptor)) EndConnection(descriptor);
  };
  for (const Address& address : listening) ForEachSocketOf(address, look);
}

void EndAllConnections(std::span<const Address> listening) {
  const auto look = [](int descriptor) {
    if (PeerOf(descriptor) || WasReset(descriptor)) EndConnection(descriptor);
  };
  for (const Address& address : listening) ForEachSocketOf(address, look);
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
