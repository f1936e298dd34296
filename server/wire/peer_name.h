// Who is at the other side of a connection, in gRPC's words.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

namespace moed {

// "ipv4:127.0.0.1:4711", "ipv6:%5B::1%5D:4711". Clients of unix sockets are all "unix:": most have no names, and those that have
// one chose it themselves.
std::string PeerName(const sockaddr_storage& peer);
// The same of what gRPC says.
std::string_view PeerName(std::string_view peer);

}  // namespace moed
