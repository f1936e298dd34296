// The part of a connection that reads requests.
#include <algorithm>
#include <cctype>
#include <limits>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/base/trace_parent.h"
#include "server/http/transport/connection.h"
#include "server/http/transport/status_text.h"

namespace moed::http {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using boost::system::error_code;

constexpr size_t kReadAheadBytes = 16 << 10;  // of requests that a client sends before it has its answer
constexpr size_t kChunkOverheadBytes = 64 << 10;
constexpr size_t kLingerBytes = 16 << 20;
constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kSchemeEnd = "://";

std::string Lower(boost::beast::string_view text) {
  std::string lower(text.data(), text.size());
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// Of "/v1/models?a=b", or of "http://HOST/v1/models", as proxies write it (RFC 9112, section 3.2.2). "" where there is none.
std::string PathOf(std::string_view target) {
  target = target.substr(0, target.find('?'));
  if (target.starts_with('/')) return std::string(target);
  const size_t host = target.find(kSchemeEnd);
  if (host == std::string_view::npos) return "";
  const std::string scheme = Lower({target.data(), host});
  if (scheme != "http" && scheme != "https") return "";
  const size_t path = target.find('/', host + kSchemeEnd.size());
  if (path == host + kSchemeEnd.size()) return "";
  return path == std::string_view::npos ? "/" : std::string(target.substr(path));
}

}  // namespace

void Connection::AwaitRequest() {
  parser_.emplace();
  head_alone_ = false;
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
  if (ended_) return OnPeerGone();
  reading_ = true;
  stream_.ReadSome(asio::buffer(chunk_), [self = shared_from_this()](const error_code& error, size_t bytes) {
    self->reading_ = false;
    self->OnRead(error, bytes);
  });
}

void Connection::OnRead(const error_code& error, size_t bytes) {
  if (state_ == State::kClosed) return;
  ended_ = static_cast<bool>(error);
  if (ended_ && finishing_ && state_ == State::kAnswering) return;
  if (ended_) return OnPeerGone();
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

// Empty lines before a request (RFC 9112, section 2.2).
void Connection::SkipEmptyLines() {
  size_t lines = 0;
  while (unparsed_.compare(lines, kLineEnd.size(), kLineEnd) == 0) lines += kLineEnd.size();
  unparsed_.erase(0, lines);
}

bool Connection::ParseSome() {
  if (state_ == State::kIdle) SkipEmptyLines();
  if (unparsed_.empty() || (state_ == State::kIdle && unparsed_ == kLineEnd.substr(0, 1))) {
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
  if (auto refusal = LengthRefusal(hungry)) {
    Refuse(*std::move(refusal));
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

// Of what the parser takes whole or not at all: a head, the line before a chunk, the trailer.
std::optional<HttpReply> Connection::LengthRefusal(bool hungry) {
  const size_t most = share_->limits.head_bytes;
  if (state_ == State::kHead && wire_bytes_ + (parser_->is_header_done() ? 0 : unparsed_.size()) > most) {
    return share_->handler.Refusal("", 431, StrCat("the request's head is longer than ", most, " bytes"));
  }
  if (state_ == State::kBody && hungry && unparsed_.size() > most) {
    const std::string message = StrCat("a chunk's extension or the trailer is longer than ", most, " bytes");
    return share_->handler.Refusal(request_.path, 400, message);
  }
  return std::nullopt;
}

bool Connection::TakeHead() {
  const auto& head = parser_->get();
  request_.id = NewRequestId();
  request_.method = std::string(head.method_string().data(), head.method_string().size());
  head_alone_ = head.method() == beast_http::verb::head;
  request_.path = PathOf({head.target().data(), head.target().size()});
  for (const auto& field : head) {
    request_.headers.push_back({Lower(field.name_string()), std::string(field.value().data(), field.value().size())});
  }
  if (head.count(kTraceParentKey) == 1) request_.trace_parent = ReadTraceParent(std::string(head[kTraceParentKey]));
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
  if (request_.path.empty()) return refusal(400, "the request's target must be a path");
  if (head.target().size() > share_->limits.target_bytes) {
    return refusal(414, StrCat("the path is longer than ", share_->limits.target_bytes, " bytes"));
  }
  if (chunked_ && head.count("Host") != 1) return refusal(400, "HTTP/1.1 wants one Host header");
  if (head.count("Transfer-Encoding") > 0 && !parser_->chunked()) {
    return refusal(501, "the only transfer encoding that is read is chunked");
  }
  const size_t encodings = head.count("Content-Encoding");
  if (encodings > 1 || (encodings == 1 && !boost::beast::iequals(head["Content-Encoding"], "identity")))
    return refusal(415, "bodies must not be compressed");
  const uint64_t length = parser_->content_length().value_or(0);
  // Nobody reads it, and whoever asks without a token would take the room of bodies that are read.
  if ((head_alone_ || head.method() == beast_http::verb::get) && (length > 0 || parser_->chunked())) {
    return refusal(400, StrCat("a ", request_.method, " has no body"));
  }
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
  if (HoldRequest(bytes)) return true;
  Refuse(share_->handler.Refusal(request_.path, 503, kTooManyLargeRequests));
  return false;
}

bool Connection::HoldRequest(size_t bytes) {
  if (bytes <= counted_bytes_) return true;
  const size_t more = bytes - counted_bytes_;
  const size_t before = share_->body_bytes.fetch_add(more);
  const bool alone = before == counted_bytes_;
  if (before + more > share_->limits.bodies_bytes && !alone) {
    share_->body_bytes -= more;
    return false;
  }
  counted_bytes_ = bytes;
  return true;
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
  finishing_ = false;
  SetState(State::kAnswering);
  ClearDeadline();
}

}  // namespace moed::http
