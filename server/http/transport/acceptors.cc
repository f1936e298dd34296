#include "server/http/transport/acceptors.h"

#include <string>
#include <utility>

#include "boost/asio/ip/v6_only.hpp"
#include "boost/asio/strand.hpp"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "spdlog/spdlog.h"

namespace moed::http {
namespace {

namespace asio = boost::asio;
namespace errc = boost::system::errc;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int64_t kBetweenLinesNanos = 10'000'000'000;

absl::Status Failed(const Address& address, const error_code& error) {
  return absl::UnavailableError(StrCat("cannot listen on ", address.Text(), ": ", error.message()));
}

}  // namespace

absl::Status Acceptors::Listen(const Address& address) {
  error_code error;
  tcp::resolver resolver(strand_.get_inner_executor());
  const auto found = resolver.resolve(address.host, std::to_string(address.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error) return Failed(address, error);
  std::vector<Endpoint> endpoints;
  for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  return Open(endpoints, address);
}

absl::Status Acceptors::Open(const std::vector<Endpoint>& endpoints, const Address& address) {
  error_code error = make_error_code(errc::address_not_available);
  for (Endpoint endpoint : endpoints) {
    if (port_ != 0) endpoint.port(static_cast<uint16_t>(port_));
    auto listening = std::make_unique<Listening>(Listening{Acceptor(strand_)});
    Bind(listening->acceptor, endpoint, error);
    if (error == errc::address_family_not_supported || error == errc::address_not_available) continue;
    if (error) return Failed(address, error);
    port_ = listening->acceptor.local_endpoint().port();
    listening_.push_back(std::move(listening));
  }
  return listening_.empty() ? Failed(address, error) : absl::OkStatus();
}

void Acceptors::Bind(Acceptor& acceptor, const Endpoint& endpoint, error_code& error) {
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  // The wildcard takes both families.
  const bool v6 = endpoint.protocol() == tcp::v6();
  if (!error && v6) acceptor.set_option(asio::ip::v6_only(!endpoint.address().is_unspecified()), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
}

void Acceptors::Accept(const std::function<void(Socket socket)>& take) {
  for (const auto& listening : listening_) {
    if (!listening->accepting) Accept(*listening, take);
  }
}

void Acceptors::Accept(Listening& listening, const std::function<void(Socket socket)>& take) {
  listening.accepting = true;
  listening.acceptor.async_accept(asio::make_strand(strand_.get_inner_executor()),
                                  [this, &listening, take](const error_code& error, Socket socket) {
                                    listening.accepting = false;
                                    if (error == asio::error::operation_aborted) return;
                                    if (error) return CountFailure(error);
                                    take(std::move(socket));
                                    Accept(listening, take);
                                  });
}

// No descriptors are left, as a rule, and that goes on for a while.
void Acceptors::CountFailure(const error_code& error) {
  ++failures_;
  const int64_t now = Clock::Real().NowNanos();
  if (now < tell_again_nanos_) return;
  tell_again_nanos_ = now + kBetweenLinesNanos;
  spdlog::warn("no connection could be taken, in {} attempts: {}", std::exchange(failures_, 0), error.message());
}

void Acceptors::Close() {
  error_code ignored;
  for (const auto& listening : listening_) listening->acceptor.close(ignored);
}

}  // namespace moed::http
