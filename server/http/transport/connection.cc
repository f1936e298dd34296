#include "server/http/transport/connection.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "absl/strings/str_format.h"
#include "boost/asio/dispatch.hpp"
#include "boost/asio/write.hpp"
#include "core/base/status.h"
#include "server/http/transport/status_text.h"

namespace moed::http {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using boost::system::error_code;

constexpr size_t kReadAheadBytes = 16 << 10;  // of requests that a client sends before it has its answer
constexpr size_t kChunkOverheadBytes = 64 << 10;
constexpr size_t kLingerBytes = 16 << 20;
constexpr int kLingerSeconds = 5;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kNanosPerSecond = 1'000'000'000;

std::string Lower(boost::beast::string_view text) {
  std::string lower(text.data(), text.size());
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::string AddressOf(const Socket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  return error ? "" : endpoint.address().to_string();
}

}  // namespace

Connection::Connection(Socket socket, std::shared_ptr<ConnectionShare> share)
    : socket_(std::move(socket)), share_(std::move(share)), client_(AddressOf(socket_)), deadline_nanos_(kNever) {
  ++share_->connections;
}

Connection::~Connection() {
  share_->body_bytes -= counted_bytes_;
  --share_->connections;
}

void Connection::Begin() {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this()] {
    error_code ignored;
    self->socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    self->AwaitRequest();
  });
}

// Reading

void Connection::AwaitRequest() {
  parser_.emplace();
  // ParseSome and CountBody hold the limits.
  parser_->header_limit(std::numeric_limits<uint32_t>::max());
  parser_->body_limit(std::numeric_limits<uint64_t>::max());
  request_ = {};
  wire_bytes_ = 0;
  SetState(State::kIdle);
  SetDeadline(share_->limits.idle_seconds);
  Parse();
}

void Connection::Read() {
  if (reading_ || state_ == State::kClosed) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(chunk_), [self = shared_from_this()](const error_code& error, size_t bytes) {
    self->reading_ = false;
    self->OnRead(error, bytes);
  });
}

void Connection::OnRead(const error_code& error, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (error) return OnPeerGone();
  if (state_ == State::kLingering) {
    lingered_bytes_ += bytes;
    return lingered_bytes_ > kLingerBytes ? Close() : Read();
  }
  unparsed_.append(chunk_.data(), bytes);
  if (state_ != State::kAnswering) return Parse();
  // Somebody reads on, so that a client that goes away is noticed.
  if (unparsed_.size() < kReadAheadBytes) Read();
}

void Connection::Parse() {
  while (ParseSome()) {
  }
}

bool Connection::ParseSome() {
  if (unparsed_.empty()) {
    Read();
    return false;
  }
  if (state_ == State::kIdle) {
    begun_nanos_ = Clock::Real().NowNanos();
    SetState(State::kHead);
    SetDeadline(share_->limits.read_seconds);
  }
  error_code error;
  const size_t used = parser_->put(asio::const_buffer(unparsed_.data(), unparsed_.size()), error);
  unparsed_.erase(0, used);
  wire_bytes_ += used;
  const bool hungry = error == beast_http::error::need_more;
  if (error && !hungry) {
    RefuseMalformed(error);
    return false;
  }
  if (state_ == State::kHead && wire_bytes_ + (parser_->is_header_done() ? 0 : unparsed_.size()) > share_->limits.head_bytes) {
    Refuse(share_->handler.Refusal("", 431, StrCat("the request's head is longer than ", share_->limits.head_bytes, " bytes")));
    return false;
  }
  if (state_ == State::kHead && parser_->is_header_done() && !TakeHead()) return false;
  if (state_ == State::kBody && !CountBody()) return false;
  if (parser_->is_done()) {
    HandOver();
    return false;
  }
  if (hungry) Read();
  return !hungry;
}

bool Connection::TakeHead() {
  const auto& head = parser_->get();
  request_.id = NewRequestId();
  request_.method = std::string(head.method_string().data(), head.method_string().size());
  request_.path = std::string(head.target().data(), std::min(head.target().size(), head.target().find('?')));
  for (const auto& field : head) {
    request_.headers.push_back({Lower(field.name_string()), std::string(field.value().data(), field.value().size())});
  }
  keep_alive_ = parser_->keep_alive();
  chunked_ = head.version() == 11;
  if (auto refusal = HeadRefusal()) {
    Refuse(*std::move(refusal));
    return false;
  }
  SetState(State::kBody);
  SetDeadline(share_->limits.read_seconds);
  parser_->eager(true);
  if (!parser_->is_done() && Lower(head["Expect"]) == "100-continue") {
    Continue();
    return false;
  }
  return true;
}

std::optional<HttpReply> Connection::HeadRefusal() {
  const auto& head = parser_->get();
  const auto refusal = [this](int status, const std::string& message) {
    keep_alive_ = false;
    return share_->handler.Refusal(request_.path, status, message);
  };
  if (head.target().empty() || head.target()[0] != '/') return refusal(400, "the request's target must be a path");
  if (head.target().size() > share_->limits.target_bytes) {
    return refusal(414, StrCat("the path is longer than ", share_->limits.target_bytes, " bytes"));
  }
  if (chunked_ && head.count("Host") != 1) return refusal(400, "HTTP/1.1 wants one Host header");
  if (head.count("Transfer-Encoding") > 0 && !parser_->chunked()) {
    return refusal(501, "the only transfer encoding that is read is chunked");
  }
  if (head.count("Content-Encoding") > 0) return refusal(415, "bodies must not be compressed");
  const uint64_t length = parser_->content_length().value_or(0);
  if (length > share_->limits.body_bytes) {
    return refusal(413, StrCat("the body has ", length, " bytes, allowed are ", share_->limits.body_bytes));
  }
  return share_->handler.Admit(request_);
}

bool Connection::CountBody() {
  const size_t bytes = parser_->get().body().size();
  const TransportLimits& limits = share_->limits;
  if (bytes > limits.body_bytes || wire_bytes_ > limits.head_bytes + 2 * limits.body_bytes + kChunkOverheadBytes) {
    Refuse(share_->handler.Refusal(request_.path, 413, StrCat("the body is longer than ", limits.body_bytes, " bytes")));
    return false;
  }
  const size_t more = bytes - counted_bytes_;
  counted_bytes_ = bytes;
  if ((share_->body_bytes += more) <= limits.bodies_bytes || more == 0) return true;
  Refuse(share_->handler.Refusal(request_.path, 503, "too many large requests at once"));
  return false;
}

void Connection::Continue() {
  Send("HTTP/1.1 100 Continue\r\n\r\n", [this] {
    SetDeadline(share_->limits.read_seconds);
    Parse();
  });
}

void Connection::HandOver() {
  request_.body = std::move(parser_->get().body());
  BeginAnswer();
  handed_over_ = true;
  ++share_->exchanges;
  Read();
  share_->handler.Handle(shared_from_this());
}

void Connection::RefuseMalformed(const error_code& error) {
  Refuse(share_->handler.Refusal(request_.path, 400, StrCat("malformed HTTP: ", error.message())));
}

// Answers what was not read to its end: the connection ends after it, for nobody knows where the next request begins.
void Connection::Refuse(HttpReply reply) {
  keep_alive_ = keep_alive_ && parser_->is_done();
  BeginAnswer();
  SendReply(reply);
}

void Connection::BeginAnswer() {
  record_ = {};
  record_.request_bytes = request_.body.size();
  parser_.reset();
  SetState(State::kAnswering);
  ClearDeadline();
}

// Answering

void Connection::Reply(HttpReply reply) {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this(), reply = std::move(reply)] {
    if (self->state_ == State::kAnswering) self->SendReply(reply);
  });
}

void Connection::StartStream(std::string content_type) {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this(), content_type = std::move(content_type)] {
    if (self->state_ != State::kAnswering) return;
    self->keep_alive_ = self->keep_alive_ && self->chunked_;
    self->head_ = self->Head(200, content_type, std::nullopt, {{"cache-control", "no-store"}});
  });
}

void Connection::Write(std::string part, std::function<void()> written) {
  asio::dispatch(socket_.get_executor(),
                 [self = shared_from_this(), part = std::move(part), written = std::move(written)]() mutable {
                   if (self->state_ != State::kAnswering) return;
                   self->Send(std::exchange(self->head_, {}) + self->Chunk(std::move(part)), std::move(written));
                 });
}

void Connection::EndStream(std::string last_part) {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this(), last_part = std::move(last_part)]() mutable {
    if (self->state_ != State::kAnswering) return;
    std::string bytes = std::exchange(self->head_, {}) + self->Chunk(std::move(last_part));
    if (self->chunked_) bytes += "0\r\n\r\n";
    self->Send(std::move(bytes), [self = self.get()] { self->FinishExchange(); });
  });
}

void Connection::OnGone(std::function<void()> gone) {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this(), gone = std::move(gone)]() mutable {
    if (self->state_ == State::kClosed) return gone();
    if (self->state_ == State::kAnswering) self->gone_ = std::move(gone);
  });
}

std::string Connection::Head(int status, const std::string& content_type, std::optional<size_t> length,
                             const std::vector<Header>& headers) {
  record_.status = status;
  keep_alive_ = keep_alive_ && !share_->draining;
  std::string head = StrCat("HTTP/1.1 ", status, " ", StatusText(status), "\r\ncontent-type: ", content_type, "\r\n");
  if (!request_.id.empty()) head += StrCat("x-request-id: ", request_.id, "\r\n");
  for (const Header& header : headers) head += StrCat(header.name, ": ", header.value, "\r\n");
  if (length.has_value()) {
    head += StrCat("content-length: ", *length, "\r\n");
  } else if (chunked_) {
    head += "transfer-encoding: chunked\r\n";
  }
  return StrCat(head, "connection: ", keep_alive_ ? "keep-alive" : "close", "\r\n\r\n");
}

std::string Connection::Chunk(std::string part) const {
  if (!chunked_ || part.empty()) return part;
  return absl::StrFormat("%x\r\n%s\r\n", part.size(), part);
}

void Connection::SendReply(const HttpReply& reply) {
  Send(Head(reply.status, reply.content_type, reply.body.size(), reply.headers) + reply.body, [this] { FinishExchange(); });
}

void Connection::Send(std::string bytes, std::function<void()> sent) {
  sending_ = std::move(bytes);
  sent_ = std::move(sent);
  sent_bytes_ = 0;
  SendRest();
}

void Connection::SendRest() {
  SetDeadline(share_->limits.write_seconds);
  socket_.async_write_some(asio::buffer(sending_) + sent_bytes_,
                           [self = shared_from_this()](const error_code& error, size_t bytes) {
                             if (self->state_ == State::kClosed) return;
                             if (error) return self->OnPeerGone();
                             if (self->record_.reply_bytes == 0) {
                               self->record_.first_byte_seconds = SecondsBetween(self->begun_nanos_, Clock::Real().NowNanos());
                             }
                             self->record_.reply_bytes += bytes;
                             self->sent_bytes_ += bytes;
                             if (self->sent_bytes_ < self->sending_.size()) return self->SendRest();
                             self->ClearDeadline();
                             std::exchange(self->sent_, {})();
                           });
}

// Ends

void Connection::FinishExchange() {
  EndExchange(false);
  if (keep_alive_ && !share_->draining) {
    AwaitRequest();
  } else {
    Linger();
  }
}

void Connection::EndExchange(bool gone) {
  record_.id = request_.id;
  record_.client = client_;
  record_.method = request_.method;
  record_.path = request_.path;
  record_.seconds = SecondsBetween(begun_nanos_, Clock::Real().NowNanos());
  record_.gone = gone;
  share_->log.Write(record_);
  if (std::exchange(handed_over_, false)) --share_->exchanges;
  share_->body_bytes -= std::exchange(counted_bytes_, 0);
  sending_ = {};
  if (auto callback = std::exchange(gone_, {}); gone && callback) callback();
}

// Whoever still sends would be told of a reset instead of the answer: it is read for a while.
void Connection::Linger() {
  SetState(State::kLingering);
  unparsed_ = {};
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  SetDeadline(kLingerSeconds);
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
  socket_.close(ignored);
}

void Connection::Tick(int64_t now_nanos) {
  if (now_nanos < deadline_nanos_.load(std::memory_order_relaxed)) return;
  asio::dispatch(socket_.get_executor(), [self = shared_from_this(), now_nanos] {
    if (now_nanos < self->deadline_nanos_.load(std::memory_order_relaxed)) return;
    if ((self->state_ == State::kHead || self->state_ == State::kBody) && self->sent_ == nullptr) {
      return self->Refuse(self->share_->handler.Refusal(self->request_.path, 408, "the request did not come in time"));
    }
    self->OnPeerGone();
  });
}

void Connection::CloseIfIdle() {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this()] {
    if (self->state_ == State::kIdle) self->Close();
  });
}

void Connection::Abandon() {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this()] {
    if (self->state_ != State::kClosed) self->OnPeerGone();
  });
}

void Connection::SetDeadline(int seconds) {
  deadline_nanos_.store(Clock::Real().NowNanos() + seconds * kNanosPerSecond, std::memory_order_relaxed);
}

void Connection::ClearDeadline() { deadline_nanos_.store(kNever, std::memory_order_relaxed); }

void Connection::SetState(State state) {
  state_ = state;
  idle_.store(state == State::kIdle, std::memory_order_relaxed);
}

}  // namespace moed::http
