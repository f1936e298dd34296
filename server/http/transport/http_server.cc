#include "server/http/transport/http_server.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/signal_set.hpp"
#include "boost/asio/steady_timer.hpp"
#include "core/base/status.h"
#include "server/http/transport/acceptors.h"
#include "server/http/transport/connection.h"
#include "server/http/transport/tls_context.h"
#include "spdlog/spdlog.h"

namespace moed::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr int kThreads = 2;
constexpr auto kTick = std::chrono::milliseconds(100);
constexpr int64_t kNanosPerSecond = 1'000'000'000;
// Who signals a process and its group, as timeout(1) does, means one end.
constexpr int64_t kOneWishNanos = kNanosPerSecond / 50;

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpServerOptions& options, RequestHandler& handler, AccessLog& log)
      : options_(options), share_(std::make_shared<ConnectionShare>(options.limits, handler, log)) {}
  ~Impl() {
    io_.stop();
    if (late_.joinable()) late_.join();
  }

  absl::Status Listen();
  std::string address() const { return Address{options_.listen.host, acceptors_.port()}.Text(); }
  void Serve(std::function<void()> on_hangup, std::function<void()> on_ending, std::function<void()> on_drain);

 private:
  absl::Status RenewTls();
  void OnAccepted(Socket socket);
  bool EndOneIdle();
  void Refuse(Socket socket);
  void AwaitSignal();
  void BeginEnd();
  void BeginDrain();
  void Tick();
  void End();
  std::vector<std::shared_ptr<Connection>> LiveConnections();

  const HttpServerOptions options_;
  const std::shared_ptr<ConnectionShare> share_;
  asio::io_context io_{kThreads};
  // What follows is of this strand; each connection has its own.
  const Strand strand_ = asio::make_strand(io_);
  Acceptors acceptors_{strand_};
  asio::basic_signal_set<Strand> signals_{strand_, SIGTERM, SIGINT, SIGHUP};
  asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>, Strand> timer_{strand_};
  std::function<void()> on_hangup_, on_ending_, on_drain_;
  std::shared_ptr<const TlsMaterial> tls_material_;  // of which tls_ is made
  std::shared_ptr<TlsContext> tls_;                  // null: plain text
  std::optional<int64_t> signal_nanos_;              // when the first that ends came
  std::optional<int64_t> drain_begin_nanos_;         // once it has
  int64_t drain_end_nanos_ = 0;
  std::thread late_;  // runs what is told to connections after their end
  absl::Mutex mutex_;
  std::vector<std::weak_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
};

absl::Status HttpServer::Impl::Listen() {
  MOED_RETURN_IF_ERROR(RenewTls());
  return acceptors_.Listen(options_.listen);
}

// What is made of certificates that are not taken is what there was before.
absl::Status HttpServer::Impl::RenewTls() {
  if (options_.certificates == nullptr) return absl::OkStatus();
  auto material = options_.certificates->current();
  if (material == tls_material_) return absl::OkStatus();
  tls_material_ = std::move(material);
  MOED_ASSIGN_OR_RETURN(tls_, TlsContext::Make(*tls_material_));
  return absl::OkStatus();
}

void HttpServer::Impl::Serve(std::function<void()> on_hangup, std::function<void()> on_ending, std::function<void()> on_drain) {
  on_hangup_ = std::move(on_hangup);
  on_ending_ = std::move(on_ending);
  on_drain_ = std::move(on_drain);
  asio::post(strand_, [this] {
    AwaitSignal();
    Tick();
  });
  std::vector<std::thread> threads;
  for (int i = 1; i < kThreads; ++i) threads.emplace_back([this] { io_.run(); });
  io_.run();
  for (std::thread& thread : threads) thread.join();
  // What an answer comes to that was too late would stay here, with all that it holds.
  io_.restart();
  late_ = std::thread([this] {
    const auto work = asio::make_work_guard(io_);
    io_.run();
  });
}

void HttpServer::Impl::OnAccepted(Socket socket) {
  if (share_->connections >= options_.limits.connections && !EndOneIdle()) return Refuse(std::move(socket));
  auto connection = std::make_shared<Connection>(std::move(socket), tls_, share_);
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(connections_, [](const auto& weak) { return weak.expired(); });
    connections_.push_back(connection);
  }
  connection->Begin();
}

// One that waits for its next request makes room for who has one. False: nobody waits.
bool HttpServer::Impl::EndOneIdle() {
  const int64_t now = Clock::Real().NowNanos();
  for (const auto& connection : LiveConnections()) {
    if (!connection->idle(now)) continue;
    connection->CloseIfIdle();
    return true;
  }
  return false;
}

void HttpServer::Impl::Refuse(Socket socket) {
  if (tls_ != nullptr) return;  // words in plain text would mislead
  const HttpReply reply = share_->handler.Refusal("", 503, StrCat("all ", options_.limits.connections, " connections are taken"));
  const std::string bytes = StrCat("HTTP/1.1 503 Service Unavailable\r\ncontent-type: ", reply.content_type,
                                   "\r\ncontent-length: ", reply.body.size(), "\r\nconnection: close\r\n\r\n", reply.body);
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(bytes), ignored);
}

void HttpServer::Impl::AwaitSignal() {
  signals_.async_wait([this](const error_code& error, int signal) {
    if (error) return;
    if (signal == SIGHUP) {
      on_hangup_();
      if (const absl::Status renewed = RenewTls(); !renewed.ok()) spdlog::error("{}", std::string(renewed.message()));
      return AwaitSignal();
    }
    const int64_t now = Clock::Real().NowNanos();
    if (signal_nanos_ && now - *signal_nanos_ < kOneWishNanos) return AwaitSignal();
    if (signal_nanos_) {
      spdlog::default_logger()->flush();
      _exit(128 + signal);
    }
    signal_nanos_ = now;
    BeginEnd();
    AwaitSignal();
  });
}

void HttpServer::Impl::BeginEnd() {
  const int delay = options_.drain_delay_seconds;
  drain_begin_nanos_ = Clock::Real().NowNanos() + delay * kNanosPerSecond;
  on_ending_();
  if (delay == 0) return BeginDrain();
  spdlog::info("not ready any more: new requests are taken for {} s more (--drain-delay-seconds)", delay);
}

void HttpServer::Impl::BeginDrain() {
  share_->draining = true;
  spdlog::info("draining: {} answers may take {} s more", share_->exchanges.load(), options_.drain_seconds);
  drain_end_nanos_ = Clock::Real().NowNanos() + options_.drain_seconds * kNanosPerSecond;
  on_drain_();
}

void HttpServer::Impl::Tick() {
  const int64_t now = Clock::Real().NowNanos();
  if (drain_begin_nanos_ && !share_->draining && now >= *drain_begin_nanos_) BeginDrain();
  for (const auto& connection : LiveConnections()) {
    connection->Tick(now);
    if (share_->draining) connection->CloseIfIdle();
  }
  if (share_->draining && (share_->exchanges == 0 || now >= drain_end_nanos_)) return End();
  acceptors_.Accept([this](Socket socket) { OnAccepted(std::move(socket)); });
  timer_.expires_after(kTick);
  timer_.async_wait([this](const error_code& error) {
    if (!error) Tick();
  });
}

void HttpServer::Impl::End() {
  error_code ignored;
  acceptors_.Close();
  // From here on another one ends the program by itself.
  for (const int signal : {SIGTERM, SIGINT}) signals_.remove(signal, ignored);
  signals_.cancel(ignored);
  for (const auto& connection : LiveConnections()) connection->Abandon();
}

std::vector<std::shared_ptr<Connection>> HttpServer::Impl::LiveConnections() {
  std::vector<std::shared_ptr<Connection>> live;
  absl::MutexLock lock(&mutex_);
  for (const auto& weak : connections_) {
    if (auto connection = weak.lock()) live.push_back(std::move(connection));
  }
  return live;
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(const HttpServerOptions& options, RequestHandler& handler,
                                                               AccessLog& log) {
  auto impl = std::make_unique<Impl>(options, handler, log);
  MOED_RETURN_IF_ERROR(impl->Listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

std::string HttpServer::address() const { return impl_->address(); }
void HttpServer::Serve(std::function<void()> on_hangup, std::function<void()> on_ending, std::function<void()> on_drain) {
  impl_->Serve(std::move(on_hangup), std::move(on_ending), std::move(on_drain));
}

}  // namespace moed::http
