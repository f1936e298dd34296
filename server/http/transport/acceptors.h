// The sockets that listen, one for each address that a name stands for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "boost/asio/basic_socket_acceptor.hpp"
#include "core/base/address.h"
#include "server/http/transport/stream.h"

namespace moed::http {

// Used on the strand, on which connections come. Must outlive the io_context's work.
class Acceptors {
 public:
  using Endpoint = boost::asio::ip::tcp::endpoint;

  explicit Acceptors(Strand strand) : strand_(std::move(strand)) {}

  absl::Status Listen(const Address& address);
  // All with the port that the first one got. A family that the machine lacks is left out, unless there is no other. UNAVAILABLE
  // names the address.
  absl::Status Open(const std::vector<Endpoint>& endpoints, const Address& address);
  int port() const { return port_; }

  // `take` gets each connection, on a strand of its own. Where none could be taken, that socket rests until this is called again.
  void Accept(const std::function<void(Socket socket)>& take);
  void Close();

 private:
  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::ip::tcp, Strand>;
  struct Listening {
    Acceptor acceptor;
    bool accepting = false;
  };
  static void Bind(Acceptor& acceptor, const Endpoint& endpoint, boost::system::error_code& error);
  void Accept(Listening& listening, const std::function<void(Socket socket)>& take);
  void CountFailure(const boost::system::error_code& error);

  const Strand strand_;
  std::vector<std::unique_ptr<Listening>> listening_;
  int port_ = 0;
  int failures_ = 0;  // that the log has not been told of
  int64_t tell_again_nanos_ = 0;
};

}  // namespace moed::http
