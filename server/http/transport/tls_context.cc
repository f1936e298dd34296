#include "server/http/transport/tls_context.h"

#include <openssl/ssl.h>

#include <string>

#include "boost/asio/buffer.hpp"
#include "core/base/status.h"

namespace moed::http {
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

}  // namespace

absl::StatusOr<std::shared_ptr<TlsContext>> TlsContext::Make(const TlsMaterial& material) {
  auto made = std::make_shared<TlsContext>();
  ssl::context& context = made->context_;
  SSL_CTX* const native = context.native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);  // of connections that are idle
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(native, 0);  // who was known under other certificates comes in by those that hold now
  SSL_CTX_set_options(native, SSL_OP_NO_TICKET);
  error_code error;
  context.use_certificate_chain(boost::asio::buffer(material.certificate), error);
  if (!error) context.use_private_key(boost::asio::buffer(material.key), ssl::context::pem, error);
  if (!error && !material.client_ca.empty()) {
    context.add_certificate_authority(boost::asio::buffer(material.client_ca), error);
    if (!error) context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert, error);
  }
  if (error) return InvalidArgument("TLS does not take the certificates: ", error.message());
  return made;
}

}  // namespace moed::http
