#include "client/channel_credentials.h"

#include <string_view>

#include "core/base/address.h"
#include "core/base/bounded_file.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr const char* kSystem = "system";

// gRPC says nothing of a file that is no PEM: calls would never connect.
absl::StatusOr<std::string> ReadPem(const std::string& flag, const std::string& path) {
  constexpr size_t kMostBytes = 1 << 20;
  absl::StatusOr<std::string> text = ReadBoundedFile(path, kMostBytes);
  if (!text.ok()) return Annotate(text.status(), flag);
  if (text->find("-----BEGIN ") == std::string::npos) return InvalidArgument(flag, ": '", path, "' is no PEM file");
  return text;
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(const ClientTls& tls, const std::string& prefix,
                                                                                 grpc::ChannelArguments& arguments) {
  const bool has_certificate = !tls.certificate.empty(), has_key = !tls.key.empty();
  if (has_certificate != has_key) {
    return InvalidArgument(prefix, has_certificate ? "cert" : "key", ": ", prefix, has_certificate ? "key" : "cert",
                           " is missing: a certificate is shown with its key");
  }
  if (tls.ca.empty()) {
    if (!has_certificate && tls.server_name.empty()) return grpc::InsecureChannelCredentials();
    return InvalidArgument(prefix, has_certificate ? "cert" : "name", ": ", prefix,
                           "ca is missing: a file of the server's authorities, or \"system\" for those of this machine");
  }
  grpc::SslCredentialsOptions options;
  if (tls.ca != kSystem) {
    MOED_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem(prefix + "ca", tls.ca));
  }
  if (has_certificate) {
    MOED_ASSIGN_OR_RETURN(options.pem_cert_chain, ReadPem(prefix + "cert", tls.certificate));
    MOED_ASSIGN_OR_RETURN(options.pem_private_key, ReadPem(prefix + "key", tls.key));
  }
  if (!tls.server_name.empty()) arguments.SetSslTargetNameOverride(tls.server_name);
  return grpc::SslCredentials(options);
}

absl::Status CheckServerAddress(const std::string& text) {
  const absl::StatusOr<Address> address = ParseSocketAddress(text);
  MOED_RETURN_IF_ERROR(Annotate(address.status(), "bad server address"));
  if (!address->path.empty() || address->port > 0) return absl::OkStatus();
  return InvalidArgument("bad server address: \"", text, "\": a server's port is from 1 to 65535");
}

bool IsOfThisMachine(const std::string& address) {
  const auto parsed = ParseSocketAddress(address);
  return parsed.ok() && IsLocal(*parsed);
}

}  // namespace moed
