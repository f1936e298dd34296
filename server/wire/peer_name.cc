#include "server/wire/peer_name.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/strings/str_cat.h"

namespace moed {
namespace {

constexpr std::string_view kUnix = "unix:";

std::string Ip(int family, const void* address) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family, address, text, sizeof(text));
  return text;
}

}  // namespace

std::string PeerName(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_UNIX) return std::string(kUnix);
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer);
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer);
  if (peer.ss_family == AF_INET) return absl::StrCat("ipv4:", Ip(AF_INET, &v4.sin_addr), ":", ntohs(v4.sin_port));
  if (peer.ss_family != AF_INET6) return "";
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
    return absl::StrCat("ipv4:", Ip(AF_INET, &v6.sin6_addr.s6_addr[12]), ":", ntohs(v6.sin6_port));
  const std::string scope = v6.sin6_scope_id == 0 ? "" : absl::StrCat("%25", v6.sin6_scope_id);
  return absl::StrCat("ipv6:%5B", Ip(AF_INET6, &v6.sin6_addr), scope, "%5D:", ntohs(v6.sin6_port));
}

std::string_view PeerName(std::string_view peer) { return peer.starts_with("unix") ? kUnix : peer; }

}  // namespace moed
