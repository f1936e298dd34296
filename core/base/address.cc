#include "core/base/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "core/base/status.h"

namespace moed {
namespace {

constexpr std::string_view kForm =
    "an address is HOST:PORT with a port from 0 (any free one) to 65535, for example 127.0.0.1:50051 or [::1]:50051";
constexpr std::string_view kEvery = "every address of this machine is 0.0.0.0, or [::] with IPv6's; ";
constexpr std::string_view kUnix = "unix:";

}  // namespace

std::string Address::WithPort(int other) const {
  if (!path.empty()) return StrCat(kUnix, path);
  return host.find(':') == std::string::npos ? StrCat(host, ":", other) : StrCat("[", host, "]:", other);
}

bool IsLocal(const Address& address) {
  if (!address.path.empty() || address.host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
  in6_addr v6{};
  return inet_pton(AF_INET6, address.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return InvalidArgument("\"", text, "\": ", kForm);
  std::string_view host = text.substr(0, colon);
  if (host.empty() || host == "*") return InvalidArgument("\"", text, "\": ", kEvery, kForm);
  const std::string_view port = text.substr(colon + 1);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return InvalidArgument("\"", text, "\": an IPv6 address goes in brackets; ", kForm);
  }
  Address address;
  address.host = host;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (host.empty() || error != std::errc() || end != port.data() + port.size() || address.port < 0 || address.port > 65535) {
    return InvalidArgument("\"", text, "\": ", kForm);
  }
  return address;
}

absl::StatusOr<Address> ParseSocketAddress(std::string_view text) {
  constexpr size_t kMostBytes = sizeof(sockaddr_un::sun_path) - 1;
  if (!text.starts_with(kUnix)) {
    absl::StatusOr<Address> address = ParseAddress(text);
    return address.ok() ? address : InvalidArgument(address.status().message(), ", or ", kUnix, "PATH");
  }
  const std::string_view path = text.substr(kUnix.size());
  if (path.empty() || path.size() > kMostBytes) {
    return InvalidArgument("\"", text, "\": the path of a unix socket has from 1 to ", kMostBytes, " bytes");
  }
  return Address{.path = std::string(path)};
}

absl::Status TryToListen(const Address& address) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found); error != 0) {
    return InvalidArgument(address.host, ": ", gai_strerror(error));
  }
  absl::Status status;
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0)
    status = ErrnoError(errno, address.Text());
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  return status;
}

}  // namespace moed
