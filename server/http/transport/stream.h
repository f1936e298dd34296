// The bytes of one connection: in plain text, or through TLS.
#pragma once

#include <functional>
#include <memory>

#include "boost/asio/buffer.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/strand.hpp"

namespace moed::http {

using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;
using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, Strand>;

class TlsContext;

// Used on the socket's strand, on which callbacks come. At most one read and one write are under way. Outlives both.
class Stream {
 public:
  using Done = std::function<void(const boost::system::error_code& error, size_t bytes)>;

  // `tls`: null for plain text.
  Stream(Socket socket, std::shared_ptr<TlsContext> tls);
  ~Stream();

  Socket& socket() { return socket_; }
  bool encrypted() const { return tls_ != nullptr; }

  // Before anything else, where it is encrypted.
  void Handshake(std::function<void(const boost::system::error_code& error)> done);
  void ReadSome(boost::asio::mutable_buffer into, Done done);
  void WriteSome(boost::asio::const_buffer from, Done done);
  // What the socket takes now; would_block: nothing. Through TLS always nothing, for a part of a record cannot be left out.
  size_t WriteNow(boost::asio::const_buffer from, boost::system::error_code& error);
  // Tells the other side that nothing more comes. What it still sends can be read, or is waited for where it is encrypted, until
  // it ends too or the socket is closed.
  void EndWriting(std::function<void()> ended);

 private:
  struct Tls;

  Socket socket_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace moed::http
