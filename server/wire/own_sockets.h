// The process's own sockets, by the addresses that they are bound to.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/base/address.h"

namespace moed {

in_port_t PortOf(const sockaddr_storage& address);  // 0 where it has none

// This side's address, port or path alone; neither for what is no socket.
Address BoundTo(int descriptor);

// Descriptors whose side of a connection has the address, listeners included. Thread-safe; `visit` may not call it.
void ForEachSocketOf(const Address& address, const std::function<void(int descriptor)>& visit);

// What a connection has sent and nobody has read goes, too. After a mere shutdown(2) TCP would go on to receive. gRPC sees an
// error or an end, and closes the descriptor itself.
void EndConnection(int descriptor);
// Those to `listening`: of `peers`, as gRPC names them, and those whose peer is known no more; or all.
void EndConnectionsOf(std::span<const std::string> peers, std::span<const Address> listening);
void EndAllConnections(std::span<const Address> listening);
// Those that EndConnection was called for, of the process.
uint64_t EndedConnections();

}  // namespace moed
