// OpenSSL's context of what connections are encrypted with. Included by stream.cc and http_server.cc alone.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "boost/asio/ssl/context.hpp"
#include "server/wire/certificates.h"

namespace moed::http {

// TLS 1.2 or 1.3. Constant once it is made; streams count what they hold of it by themselves.
class TlsContext {
 public:
  static absl::StatusOr<std::shared_ptr<TlsContext>> Make(const TlsMaterial& material);
  boost::asio::ssl::context& context() { return context_; }

 private:
  boost::asio::ssl::context context_{boost::asio::ssl::context::tls_server};
};

}  // namespace moed::http
