#include "server/wire/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace moed {
namespace {

// gRPC's C++ has certificates that are read anew only as files that a thread of its own polls, and takes pairs that do not fit.
// Its C core asks before each handshake.
class TlsCredentials final : public grpc::ServerCredentials {
 public:
  explicit TlsCredentials(const Certificates& certificates) : certificates_(certificates) {
    const auto request = certificates.asks_clients() ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                                     : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(request, &TlsCredentials::Fetch, this));
  }
  ~TlsCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
  }  // tokens are checked by services

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static grpc_ssl_certificate_config_reload_status Fetch(void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<TlsCredentials*>(self)->FetchInto(config);
  }

  grpc_ssl_certificate_config_reload_status FetchInto(grpc_ssl_server_certificate_config** config) {
    const std::shared_ptr<const TlsMaterial> now = certificates_.current();
    absl::MutexLock lock(&mutex_);
    if (now == fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    fetched_ = now;
    const grpc_ssl_pem_key_cert_pair pair = {now->key.c_str(), now->certificate.c_str()};
    // gRPC insists on authorities, also where no client is asked for a certificate.
    const std::string& authorities = certificates_.asks_clients() ? now->client_ca : now->certificate;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const Certificates& certificates_;
  grpc_server_credentials* credentials_;
  absl::Mutex mutex_;
  std::shared_ptr<const TlsMaterial> fetched_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeTlsCredentials(const Certificates& certificates) {
  return std::make_shared<TlsCredentials>(certificates);
}

}  // namespace moed
