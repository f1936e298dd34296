// What strangers may make the program hold, and for how long.
#pragma once

#include <cstddef>

namespace moed::http {

struct TransportLimits {
  int connections = 256;
  size_t head_bytes = 16 << 10;    // request line and headers
  size_t target_bytes = 2 << 10;   // path and query
  size_t body_bytes = 4 << 20;     // of one request
  size_t bodies_bytes = 64 << 20;  // of all requests that are read or answered
  int handshake_seconds = 10;      // for TLS
  int silent_seconds = 1;          // after which a connection that has had no answer yet may make room for another
  int idle_seconds = 75;           // between two requests of a connection, and before the first
  int read_seconds = 30;           // for a head, and again for a body
  int ping_seconds = 10;           // without an event after which a stream says that it goes on
  int write_seconds = 30;          // in which a client takes something of what waits for it
};

}  // namespace moed::http
