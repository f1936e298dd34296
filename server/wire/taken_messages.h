// Messages that are whole: every handler counts what it was given, once, whatever becomes of it.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

namespace moed {

using BytesByPort = std::map<in_port_t, uint64_t>;  // of clients over TCP

// `peer`: as gRPC names it, "ipv4:127.0.0.1:4711". With the message its headers are counted, as 1 KiB. Thread-safe.
void CountTaken(std::string_view peer, size_t message_bytes);

// What was counted since it was asked for to forget, which is for the process's MessageGuard. Thread-safe.
BytesByPort TakenMessages(bool forget);

}  // namespace moed
