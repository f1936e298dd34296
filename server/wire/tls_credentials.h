// gRPC's server credentials out of Certificates.
#pragma once

#include <memory>

#include "grpcpp/security/server_credentials.h"
#include "server/wire/certificates.h"

namespace moed {

// TLS 1.2 or 1.3. Each handshake takes what the certificates hold then; connections that are there go on. Clients must have a
// certificate of client_ca where there is one. `certificates` outlive the server.
std::shared_ptr<grpc::ServerCredentials> MakeTlsCredentials(const Certificates& certificates);

}  // namespace moed
