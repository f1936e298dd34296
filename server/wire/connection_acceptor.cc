#include "server/wire/connection_acceptor.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/base/status.h"
#include "server/wire/connection_bytes.h"
#include "server/wire/inlet.h"
#include "server/wire/own_sockets.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

constexpr int kBacklog = 512;
constexpr int kUnacknowledgedMs = 30000;  // then a connection is dead
// While more comes in than there should be, connections are taken no faster than those that send too much are ended.
constexpr std::chrono::milliseconds kBetweenConnections(50);
constexpr int kLookAgainMs = 5;
constexpr int kAfterFailureMs = 50;  // what lacks then, descriptors or memory, others have to give back

int OpenSpare() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

// -1: errno says why. All addresses of a host have the port that the first one got.
int ListenOn(const addrinfo& info, int port) {
  const int listener = socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return -1;
  const int on = 1, off = 0;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage address{};
  std::memcpy(&address, info.ai_addr, info.ai_addrlen);
  if (info.ai_family == AF_INET6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
    v6.sin6_port = htons(static_cast<uint16_t>(port));
    // The wildcard takes both families.
    setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr) ? &off : &on, sizeof(on));
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(static_cast<uint16_t>(port));
  }
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), info.ai_addrlen) == 0 && listen(listener, kBacklog) == 0)
    return listener;
  const int reason = errno;
  close(listener);
  errno = reason;
  return -1;
}

int UnixSocket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

// A socket whose owner ended without removing it refuses connections.
void RemoveAbandoned(const sockaddr_un& address) {
  struct stat info;
  if (lstat(address.sun_path, &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  const int trial = UnixSocket();
  const bool refused =
      trial >= 0 && connect(trial, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 && errno == ECONNREFUSED;
  if (trial >= 0) close(trial);
  if (refused) unlink(address.sun_path);
}

// -1: errno says why.
int ListenOnPath(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX};
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  RemoveAbandoned(address);
  const int listener = UnixSocket();
  if (listener < 0) return -1;
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 && listen(listener, kBacklog) == 0) {
    return listener;
  }
  const int reason = errno;
  close(listener);
  errno = reason;
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Listen(const Address& address, int max_connections) {
  if (!address.path.empty()) {
    const int listener = ListenOnPath(address.path);
    if (listener < 0) return ErrnoError(errno, StrCat("cannot listen on ", address.Text()));
    return std::unique_ptr<ConnectionAcceptor>(new ConnectionAcceptor(address, {listener}, max_connections));
  }
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found); error != 0) {
    return InvalidArgument("cannot listen on ", address.host, ": ", gai_strerror(error));
  }
  std::vector<int> listeners;
  int port = address.port;
  absl::Status refused;
  for (const addrinfo* info = found; info != nullptr && refused.ok(); info = info->ai_next) {
    const int listener = ListenOn(*info, port);
    if (listener >= 0) {
      listeners.push_back(listener);
      port = BoundTo(listener).port;
    } else if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) {  // a name may stand for a family that the machine lacks
      refused = ErrnoError(errno, StrCat("cannot listen on ", address.Text()));
    }
  }
  if (refused.ok() && listeners.empty()) refused = ErrnoError(errno, StrCat("cannot listen on ", address.Text()));
  freeaddrinfo(found);
  if (!refused.ok()) {
    for (const int listener : listeners) close(listener);
    return refused;
  }
  Address bound = address;
  bound.port = port;
  return std::unique_ptr<ConnectionAcceptor>(new ConnectionAcceptor(std::move(bound), std::move(listeners), max_connections));
}

ConnectionAcceptor::ConnectionAcceptor(Address address, std::vector<int> listeners, int max_connections)
    : address_(std::move(address)),
      max_connections_(max_connections),
      listeners_(std::move(listeners)),
      wake_(eventfd(0, EFD_CLOEXEC)),
      spare_(OpenSpare()) {}

ConnectionAcceptor::~ConnectionAcceptor() {
  Stop();
  close(wake_);
  if (spare_ >= 0) close(spare_);
}

void ConnectionAcceptor::Start(std::function<void(int connection)> take) {
  take_ = std::move(take);
  room_ = max_connections_;
  thread_ = std::thread([this] { Loop(); });
  pthread_setname_np(thread_.native_handle(), "acceptor");
}

void ConnectionAcceptor::Stop() {
  if (thread_.joinable()) {
    eventfd_write(wake_, 1);
    thread_.join();
  }
  if (!listeners_.empty() && !address_.path.empty()) unlink(address_.path.c_str());
  for (const int listener : std::exchange(listeners_, {})) close(listener);
}

void ConnectionAcceptor::Loop() {
  using Clock = std::chrono::steady_clock;
  std::vector<pollfd> polled{{wake_, POLLIN, 0}};
  for (const int listener : listeners_) polled.push_back({listener, POLLIN, 0});
  for (Clock::time_point next;;) {
    poll(polled.data(), polled.size(), -1);
    while (polled.front().revents == 0 && !InletIsCalm() && Clock::now() < next) poll(polled.data(), 1, kLookAgainMs);
    if (polled.front().revents != 0) return;
    next = Clock::now() + kBetweenConnections;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0 && !Accept(polled[i].fd)) poll(polled.data(), 1, kAfterFailureMs);
    }
  }
}

bool ConnectionAcceptor::Accept(int listener) {
  if (spare_ < 0) spare_ = OpenSpare();
  const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection < 0 && (errno == EMFILE || errno == ENFILE)) return CloseNext(listener);
  if (connection < 0) return errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
  if (!HasRoom()) {
    if (refused_++ == 0) spdlog::warn("{} connections are open: more are closed at once (--max-connections)", max_connections_);
    close(connection);
    return true;
  }
  const int on = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(connection, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedMs, sizeof(kUnacknowledgedMs));
  CountConnection(connection);
  take_(connection);
  return true;
}

bool ConnectionAcceptor::CloseNext(int listener) {
  if (spare_ < 0) return false;
  close(spare_);  // another thread may be the one that gets it
  const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (connection >= 0) {
    ++refused_;
    close(connection);
  }
  spare_ = OpenSpare();
  return connection >= 0;
}

// Connections end without a word here, so that they are counted anew where there might be too many.
bool ConnectionAcceptor::HasRoom() {
  const int others = static_cast<int>(listeners_.size()) + 1;  // and this one
  if (room_ == 0) {
    int sockets = 0;
    ForEachSocketOf(address_, [&](int) { ++sockets; });
    room_ = std::max(0, max_connections_ - (sockets - others));
  }
  if (room_ == 0) return false;
  --room_;
  return true;
}

}  // namespace moed
