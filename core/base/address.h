// "127.0.0.1:50051", "[::1]:50051", "localhost:0", "unix:/run/moed/socket": where to listen.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moed {

struct Address {
  std::string host;  // without brackets
  int port = 0;      // 0: any free one
  std::string path;  // of a unix socket; then there is neither host nor port

  std::string Text() const { return WithPort(port); }
  std::string WithPort(int other) const;
};

// Reached from this machine alone: loopback, "localhost", and the paths of unix sockets.
bool IsLocal(const Address& address);

// HOST:PORT. INVALID_ARGUMENT says what an address looks like.
absl::StatusOr<Address> ParseAddress(std::string_view text);
// Or unix:PATH.
absl::StatusOr<Address> ParseSocketAddress(std::string_view text);

// Why nobody can listen on host and port now: "Address already in use". OK when a trial succeeds (and was undone).
absl::Status TryToListen(const Address& address);

}  // namespace moed
