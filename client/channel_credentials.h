// How a channel to the daemon is protected: TLS by files, and the token that is presented.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace moed {

struct ClientTls {
  std::string ca;  // PEM file of the authorities that servers' certificates are held against, or "system"; "" = plain text
  std::string certificate;  // PEM file, of this client; "" = it shows none
  std::string key;          // PEM file of its key
  std::string server_name;  // that the server's certificate must have; "" = the address's
};

// Also sets in `arguments` what belongs to it. INVALID_ARGUMENT names the flag (`prefix` and "ca", "cert", "key" or "name"), the
// file, and what to do.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(const ClientTls& tls, const std::string& prefix,
                                                                                 grpc::ChannelArguments& arguments);

// gRPC takes almost any string as a target and then waits: a typing error is told at once. INVALID_ARGUMENT says what an address
// looks like.
absl::Status CheckServerAddress(const std::string& address);

// Loopback, and the paths of unix sockets: nobody listens on that way. `address`: host:port, [ipv6]:port or unix:PATH.
bool IsOfThisMachine(const std::string& address);

}  // namespace moed
