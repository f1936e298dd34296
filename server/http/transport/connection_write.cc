// The part of a connection that writes answers.
#include "absl/strings/str_format.h"
#include "boost/asio/dispatch.hpp"
#include "boost/asio/write.hpp"
#include "core/base/status.h"
#include "server/http/transport/connection.h"
#include "server/http/transport/status_text.h"

namespace moed::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr int kNotModified = 304;

}  // namespace

void Connection::Reply(HttpReply reply) {
  asio::dispatch(stream_.socket().get_executor(), [self = shared_from_this(), reply = std::move(reply)] {
    if (self->state_ == State::kAnswering) self->SendReply(reply);
  });
}

void Connection::StartStream(std::string content_type, std::vector<Header> headers) {
  headers.push_back({"cache-control", "no-store"});
  headers.push_back({"x-accel-buffering", "no"});  // nginx, too, passes each part on as it comes
  asio::dispatch(stream_.socket().get_executor(),
                 [self = shared_from_this(), content_type = std::move(content_type), headers = std::move(headers)] {
                   if (self->state_ != State::kAnswering) return;
                   // Whoever writes on after a head alone must not write into the next answer.
                   self->keep_alive_ = self->keep_alive_ && self->chunked_ && !self->head_alone_;
                   self->head_ = self->Head(200, content_type, std::nullopt, headers);
                 });
}

void Connection::Write(std::string part, std::function<void()> written) {
  asio::dispatch(stream_.socket().get_executor(),
                 [self = shared_from_this(), part = std::move(part), written = std::move(written)]() mutable {
                   if (self->state_ != State::kAnswering) return;
                   if (self->head_alone_) return self->SendHeadAlone();
                   self->SendAtOnce(std::exchange(self->head_, {}) + self->Chunk(std::move(part)), std::move(written));
                 });
}

void Connection::EndStream(std::string last_part) {
  asio::dispatch(stream_.socket().get_executor(), [self = shared_from_this(), last_part = std::move(last_part)]() mutable {
    if (self->state_ != State::kAnswering) return;
    if (self->head_alone_) return self->SendHeadAlone();
    std::string bytes = std::exchange(self->head_, {}) + self->Chunk(std::move(last_part));
    if (self->chunked_) bytes += "0\r\n\r\n";
    self->finishing_ = true;
    self->Send(std::move(bytes), [self = self.get()] { self->FinishExchange(); });
  });
}

void Connection::OnGone(std::function<void()> gone) {
  asio::dispatch(stream_.socket().get_executor(), [self = shared_from_this(), gone = std::move(gone)]() mutable {
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
  if (!request_.id_header.empty()) head += StrCat(request_.id_header, ": ", request_.id, "\r\n");
  for (const Header& header : share_->handler.CommonHeaders(request_)) head += StrCat(header.name, ": ", header.value, "\r\n");
  for (const Header& header : headers) head += StrCat(header.name, ": ", header.value, "\r\n");
  if (status == kNotModified) {
    // Its body would have had a length, which this is not.
  } else if (length.has_value()) {
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
  finishing_ = true;
  std::string bytes = Head(reply.status, reply.content_type, reply.body.size(), reply.headers);
  if (!head_alone_) bytes += reply.body;
  Send(std::move(bytes), [this] { FinishExchange(); });
}

// Of a stream.
void Connection::SendHeadAlone() {
  if (std::exchange(finishing_, true)) return;
  Send(std::exchange(head_, {}), [this] { FinishExchange(); });
}

void Connection::Send(std::string bytes, std::function<void()> sent) {
  sending_ = std::move(bytes);
  sent_ = std::move(sent);
  sent_bytes_ = 0;
  SendRest();
}

// A part is a token as a rule, and the socket has room for it: that needs no further turn of the server's threads. Where `sent`
// writes again at once, the next part takes one, so that calls do not pile up on the stack.
void Connection::SendAtOnce(std::string bytes, std::function<void()> sent) {
  if (at_once_) return Send(std::move(bytes), std::move(sent));
  error_code error;
  const size_t taken = stream_.WriteNow(asio::buffer(bytes), error);
  sending_ = std::move(bytes);
  sent_ = std::move(sent);
  sent_bytes_ = 0;
  if (error == asio::error::would_block) return SendRest();
  at_once_ = true;
  OnSent(error, taken);
  at_once_ = false;
}

void Connection::SendRest() {
  if (!std::exchange(untaken_, true)) share_->untaken.Send(shared_from_this(), sending_.size());
  SetDeadline(share_->limits.write_seconds);
  stream_.WriteSome(asio::buffer(sending_) + sent_bytes_,
                    [self = shared_from_this()](const error_code& error, size_t bytes) { self->OnSent(error, bytes); });
}

void Connection::OnSent(const error_code& error, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (error) return OnPeerGone();
  if (record_.reply_bytes == 0) record_.first_byte_seconds = SecondsBetween(begun_nanos_, Clock::Real().NowNanos());
  record_.reply_bytes += bytes;
  sent_bytes_ += bytes;
  if (sent_bytes_ < sending_.size()) return SendRest();
  ClearDeadline();
  sending_ = {};
  if (std::exchange(untaken_, false)) share_->untaken.Remove(this);
  std::exchange(sent_, {})();
}

}  // namespace moed::http
