#include "server/http/transport/stream.h"

#include <utility>

#include "boost/asio/ssl/stream.hpp"
#include "server/http/transport/tls_context.h"

namespace moed::http {

using boost::system::error_code;

struct Stream::Tls {
  Tls(Socket& socket, std::shared_ptr<TlsContext> given) : context(std::move(given)), layer(socket, context->context()) {}

  const std::shared_ptr<TlsContext> context;
  boost::asio::ssl::stream<Socket&> layer;
};

Stream::Stream(Socket socket, std::shared_ptr<TlsContext> tls) : socket_(std::move(socket)) {
  if (tls != nullptr) tls_ = std::make_unique<Tls>(socket_, std::move(tls));
}

Stream::~Stream() = default;

void Stream::Handshake(std::function<void(const error_code&)> done) {
  tls_->layer.async_handshake(boost::asio::ssl::stream_base::server, std::move(done));
}

void Stream::ReadSome(boost::asio::mutable_buffer into, Done done) {
  if (tls_ == nullptr) return socket_.async_read_some(into, std::move(done));
  tls_->layer.async_read_some(into, std::move(done));
}

void Stream::WriteSome(boost::asio::const_buffer from, Done done) {
  if (tls_ == nullptr) return socket_.async_write_some(from, std::move(done));
  tls_->layer.async_write_some(from, std::move(done));
}

size_t Stream::WriteNow(boost::asio::const_buffer from, error_code& error) {
  if (tls_ == nullptr) return socket_.write_some(from, error);
  error = boost::asio::error::would_block;
  return 0;
}

void Stream::EndWriting(std::function<void()> ended) {
  error_code ignored;
  if (tls_ == nullptr) {
    socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
    return;
  }
  tls_->layer.async_shutdown([this, ended = std::move(ended)](const error_code&) {
    error_code ignored;
    socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
    ended();
  });
}

}  // namespace moed::http
