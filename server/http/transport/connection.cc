#include "server/http/transport/connection.h"

#include <limits>

#include "boost/asio/dispatch.hpp"
#include "boost/asio/post.hpp"
#include "core/base/trace_parent.h"

namespace moed::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr int kLingerSeconds = 5;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kNanosPerSecond = 1'000'000'000;

std::string AddressOf(const Socket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  return error ? "" : endpoint.address().to_string();
}

}  // namespace

Connection::Connection(Socket socket, std::shared_ptr<TlsContext> tls, std::shared_ptr<ConnectionShare> share)
    : stream_(std::move(socket), std::move(tls)),
      share_(std::move(share)),
      client_(AddressOf(stream_.socket())),
      deadline_nanos_(kNever) {
  ++share_->connections;
}

Connection::~Connection() {
  share_->untaken.Remove(this);
  share_->body_bytes -= counted_bytes_;
  --share_->connections;
}

void Connection::Begin() {
  asio::dispatch(stream_.socket().get_executor(), [self = shared_from_this()] {
    error_code ignored;
    self->stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    self->stream_.socket().non_blocking(true, ignored);
    self->stream_.encrypted() ? self->ShakeHands() : self->AwaitRequest();
  });
}

void Connection::ShakeHands() {
  SetDeadline(share_->limits.handshake_seconds);
  stream_.Handshake([self = shared_from_this()](const error_code& error) {
    if (self->state_ == State::kClosed) return;
    error ? self->Close() : self->AwaitRequest();
  });
}

void Connection::FinishExchange() {
  EndExchange(false);
  answered_.store(true, std::memory_order_relaxed);
  if (keep_alive_ && !share_->draining) {
    AwaitRequest();
  } else {
    Linger();
  }
}

void Connection::EndExchange(bool gone) {
  record_.id = request_.id;
  record_.trace_id = TraceIdOf(request_.trace_parent);
  record_.client = client_;
  record_.token = request_.caller;
  record_.method = request_.method;
  record_.path = request_.path;
  record_.seconds = SecondsBetween(begun_nanos_, Clock::Real().NowNanos());
  record_.gone = gone;
  share_->log.Write(record_);
  if (std::exchange(handed_over_, false)) --share_->exchanges;
  share_->body_bytes -= std::exchange(counted_bytes_, 0);
  sending_ = {};
  untaken_ = false;
  share_->untaken.Remove(this);
  if (auto callback = std::exchange(gone_, {}); gone && callback) callback();
}

// Whoever still sends would be told of a reset instead of the answer: it is read for a while.
void Connection::Linger() {
  SetState(State::kLingering);
  unparsed_ = {};
  SetDeadline(kLingerSeconds);
  stream_.EndWriting([self = shared_from_this()] {});
  Read();
}

void Connection::OnPeerGone() {
  if (state_ == State::kAnswering) EndExchange(true);
  Close();
}

void Connection::Close() {
  SetState(State::kClosed);
  ClearDeadline();
  sent_ = {};
  error_code ignored;
  stream_.socket().close(ignored);
}

void Connection::Tick(int64_t now_nanos) {
  if (now_nanos < deadline_nanos_.load(std::memory_order_relaxed)) return;
  asio::dispatch(stream_.socket().get_executor(), [self = shared_from_this(), now_nanos] {
    if (now_nanos < self->deadline_nanos_.load(std::memory_order_relaxed)) return;
    if ((self->state_ == State::kHead || self->state_ == State::kBody) && self->sent_ == nullptr) {
      return self->Refuse(self->share_->handler.Refusal(self->request_.path, 408, "the request did not come in time"));
    }
    self->OnPeerGone();
  });
}

bool Connection::idle(int64_t now_nanos) const {
  if (!idle_.load(std::memory_order_relaxed)) return false;
  return answered_.load(std::memory_order_relaxed) ||
         now_nanos - opened_nanos_ >= share_->limits.silent_seconds * kNanosPerSecond;
}

void Connection::CloseIfIdle() {
  asio::dispatch(stream_.socket().get_executor(), [self = shared_from_this()] {
    if (self->state_ == State::kIdle || self->state_ == State::kHandshake) self->Close();
  });
}

void Connection::Abandon() {
  asio::dispatch(stream_.socket().get_executor(), [self = shared_from_this()] {
    if (self->state_ != State::kClosed) self->OnPeerGone();
  });
}

// It may have taken all meanwhile.
void Connection::GiveUp() {
  asio::post(stream_.socket().get_executor(), [self = shared_from_this()] {
    if (self->untaken_) self->OnPeerGone();
  });
}

void Connection::SetDeadline(int seconds) {
  deadline_nanos_.store(Clock::Real().NowNanos() + seconds * kNanosPerSecond, std::memory_order_relaxed);
}

void Connection::ClearDeadline() { deadline_nanos_.store(kNever, std::memory_order_relaxed); }

void Connection::SetState(State state) {
  state_ = state;
  idle_.store(state == State::kIdle || state == State::kHandshake, std::memory_order_relaxed);
}

}  // namespace moed::http
