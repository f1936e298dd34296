// One connection: requests of HTTP/1.1 (or 1.0) one after another, read within limits, each handed over and answered.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>  // of which <boost/asio/awaitable.hpp> needs more than it includes

#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/string_body.hpp"
#include "core/base/clock.h"
#include "server/http/transport/access_log.h"
#include "server/http/transport/exchange.h"
#include "server/http/transport/handler.h"
#include "server/http/transport/limits.h"
#include "server/http/transport/stream.h"
#include "server/http/transport/untaken_answers.h"

namespace moed::http {

// What connections share. Counts fall when what they count is gone.
struct ConnectionShare {
  ConnectionShare(const TransportLimits& limits, RequestHandler& handler, AccessLog& log)
      : limits(limits), handler(handler), log(log), untaken(limits.bodies_bytes) {}

  const TransportLimits limits;
  RequestHandler& handler;
  AccessLog& log;
  std::atomic<bool> draining = false;
  std::atomic<int> connections = 0;
  std::atomic<int> exchanges = 0;      // requests that were handed over and whose answers are not whole
  std::atomic<size_t> body_bytes = 0;  // with what is made of them
  UntakenAnswers untaken;
};

// The public functions are thread-safe.
class Connection final : public Exchange, public UntakenAnswers::Client, public std::enable_shared_from_this<Connection> {
 public:
  // `tls`: null for plain text.
  Connection(Socket socket, std::shared_ptr<TlsContext> tls, std::shared_ptr<ConnectionShare> share);
  ~Connection() override;

  void Begin();
  // Ends it where its time is up.
  void Tick(int64_t now_nanos);
  void CloseIfIdle();  // also where hands are still shaken
  void Abandon();      // now, whatever it does
  // Whether it waits for a request. One that has had no answer yet has some time to send its first.
  bool idle(int64_t now_nanos) const;

  HttpRequest& request() override { return request_; }
  bool HoldRequest(size_t bytes) override;
  bool HoldAnswer(size_t bytes) override { return share_->untaken.Keep(shared_from_this(), bytes); }
  void Reply(HttpReply reply) override;
  void StartStream(std::string content_type, std::vector<Header> headers = {}) override;
  void Write(std::string part, std::function<void()> written) override;
  void EndStream(std::string last_part) override;
  std::chrono::seconds longest_silence() const override { return std::chrono::seconds(share_->limits.ping_seconds); }
  void OnGone(std::function<void()> gone) override;
  void GiveUp() override;

 private:
  enum class State { kHandshake, kIdle, kHead, kBody, kAnswering, kLingering, kClosed };

  // What follows runs on the strand.
  void ShakeHands();
  void AwaitRequest();
  void Read();
  void OnRead(const boost::system::error_code& error, size_t bytes);
  void Parse();
  void SkipEmptyLines();
  bool ParseSome();                                     // whether there may be more to parse
  std::optional<HttpReply> LengthRefusal(bool hungry);  // `hungry`: the parser wants more than there is
  bool TakeHead();
  std::optional<HttpReply> HeadRefusal();
  bool CountBody();
  void Continue();
  void HandOver();
  void RefuseMalformed(const boost::system::error_code& error);
  void Refuse(HttpReply reply);
  void BeginAnswer();

  std::string Head(int status, const std::string& content_type, std::optional<size_t> length, const std::vector<Header>& headers);
  std::string Chunk(std::string part) const;
  void SendReply(const HttpReply& reply);
  void SendHeadAlone();
  void Send(std::string bytes, std::function<void()> sent);
  void SendAtOnce(std::string bytes, std::function<void()> sent);
  void SendRest();
  void OnSent(const boost::system::error_code& error, size_t bytes);
  void FinishExchange();
  void EndExchange(bool gone);
  void Linger();
  void OnPeerGone();
  void Close();
  void SetDeadline(int seconds);
  void ClearDeadline();
  void SetState(State state);

  Stream stream_;
  const std::shared_ptr<ConnectionShare> share_;
  std::string client_;
  State state_ = State::kHandshake;
  std::atomic<bool> idle_ = true;
  std::atomic<bool> answered_ = false;  // the first request
  const int64_t opened_nanos_ = Clock::Real().NowNanos();
  std::atomic<int64_t> deadline_nanos_;

  std::array<char, 8192> chunk_;
  bool reading_ = false;  // into chunk_
  bool ended_ = false;    // nothing more comes, and nobody would be told of that a second time
  std::string unparsed_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  size_t wire_bytes_ = 0;     // of the request, parsed
  size_t counted_bytes_ = 0;  // of its body or what is made of it, in share_->body_bytes
  size_t lingered_bytes_ = 0;

  HttpRequest request_;
  bool head_alone_ = false;  // HEAD: the answer's head is all of it
  bool keep_alive_ = false;
  bool chunked_ = false;      // parts of an answer are chunks; false: they end with the connection
  bool handed_over_ = false;  // counted in share_->exchanges
  bool finishing_ = false;    // the answer's last bytes are on their way: if they can be sent, the client has it whole
  std::string head_;          // of a stream, before its first part
  std::function<void()> gone_;

  std::string sending_;
  size_t sent_bytes_ = 0;  // of sending_
  bool untaken_ = false;   // sending_ is counted in share_->untaken
  bool at_once_ = false;   // inside SendAtOnce
  std::function<void()> sent_;
  AccessRecord record_;
  int64_t begun_nanos_ = 0;
};

}  // namespace moed::http
