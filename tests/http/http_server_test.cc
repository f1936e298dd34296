// The transport over real sockets: what the sanitizers see of it.
#include "server/http/transport/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "boost/asio/ip/address.hpp"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "server/http/transport/acceptors.h"
#include "spdlog/sinks/ringbuffer_sink.h"
#include "spdlog/spdlog.h"
#include "tests/resource_limit.h"

namespace moed::http {
namespace {

using testing::_;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kGet[] = "GET /echo HTTP/1.1\r\nhost: x\r\n\r\n";

// Echoes bodies, has a large answer, streams parts as fast as they are taken, or leaves a request without an answer.
class Handler final : public RequestHandler {
 public:
  std::optional<HttpReply> Admit(HttpRequest& head) override {
    if (head.path != "/refused") return std::nullopt;
    return HttpReply{.status = 401, .body = "no"};
  }
  void Handle(std::shared_ptr<Exchange> exchange) override {
    const std::string path = exchange->request().path;
    if (path == "/large") return exchange->Reply({.body = std::string(kLargeBytes, 'x')});
    if (path != "/stream" && path != "/kept") return exchange->Reply({.body = std::move(exchange->request().body)});
    exchange->OnGone([this] { gone.Notify(); });
    if (path == "/stream") {
      exchange->StartStream("text/plain");
      return WriteOn(exchange);
    }
    kept = std::move(exchange);
    handled.Notify();
  }
  HttpReply Refusal(std::string_view, int status, std::string_view message) override {
    return {.status = status, .body = std::string(message)};
  }

  absl::Notification handled, gone;
  std::atomic<int> parts{0};
  std::shared_ptr<Exchange> kept;

 private:
  void WriteOn(const std::shared_ptr<Exchange>& exchange) {
    ++parts;
    exchange->Write(std::string(kPartBytes, 'x'), [this, exchange] { WriteOn(exchange); });
  }

 public:
  static constexpr int kPartBytes = 64 << 10;
  static constexpr size_t kLargeBytes = 8 << 20;  // more than two sockets hold
};

class HttpServerTest : public testing::Test {
 protected:
  void Serve(const TransportLimits& limits = {}) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", lines_));
    log_ = std::make_unique<AccessLog>();
    auto listening = HttpServer::Listen(
        {.listen = {"127.0.0.1", 0}, .limits = limits, .drain_delay_seconds = 0, .drain_seconds = 0}, handler_, *log_);
    ASSERT_TRUE(listening.ok()) << listening.status();
    server_ = *std::move(listening);
    thread_ = std::thread([this] { server_->Serve([] {}, [] {}, [] {}); });
    // Who is answered has a server that awaits its signal.
    ASSERT_THAT(Answer("GET /echo HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
  }
  ~HttpServerTest() override { End(); }
  void End() {
    if (!thread_.joinable()) return;
    std::raise(SIGTERM);
    thread_.join();
    log_.reset();  // its lines are written
  }

  int Connect() const {
    const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int little = 64 << 10;
    setsockopt(connection, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
    sockaddr_in address{.sin_family = AF_INET};
    const auto parsed = ParseAddress(server_->address());
    EXPECT_TRUE(parsed.ok());
    address.sin_port = htons(static_cast<uint16_t>(parsed->port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return connection;
  }
  int Ask(const std::string& bytes) const {
    const int connection = Connect();
    send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return connection;
  }
  // All that comes on a connection until the server ends it. `and_leave`: nothing more is sent, so that the server gives up.
  std::string Answer(const std::string& bytes, bool and_leave = false) const {
    const int connection = Ask(bytes);
    if (and_leave) shutdown(connection, SHUT_WR);
    return Rest(connection);
  }
  static std::string Rest(int connection) {
    std::string answer, chunk(4096, '\0');
    for (ssize_t read = 0; (read = recv(connection, chunk.data(), chunk.size(), 0)) > 0;) answer.append(chunk, 0, read);
    close(connection);
    return answer;
  }
  // Its answer has begun, and is not read.
  int AskForLarge() const {
    const int connection = Ask("GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    char first = 0;
    EXPECT_EQ(recv(connection, &first, 1, MSG_PEEK), 1);
    return connection;
  }

  const std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> lines_ = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(64);
  Handler handler_;
  std::unique_ptr<AccessLog> log_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

std::string Post(std::string_view headers, std::string_view body) {
  return StrCat("POST /echo HTTP/1.1\r\nhost: x\r\n", headers, "\r\n\r\n", body);
}

TEST_F(HttpServerTest, RequestsFollowEachOther) {
  Serve();
  const std::string last = "POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\nlast";
  const std::string answers = Answer(StrCat(kGet, Post("transfer-encoding: chunked", "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), last));
  EXPECT_THAT(answers, HasSubstr("\r\n\r\nabcdeHTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answers, testing::EndsWith("\r\n\r\nlast"));
}

TEST_F(HttpServerTest, HeadIsAnsweredWithTheHeadOfGetAlone) {
  Serve();
  // What would be taken for a body's bytes is the next answer's head.
  const std::string answers = Answer("HEAD /refused HTTP/1.1\r\nhost: x\r\n\r\nGET /refused HTTP/1.0\r\n\r\n");
  EXPECT_THAT(answers, StartsWith("HTTP/1.1 401 "));
  const size_t second = answers.find("\r\n\r\n") + 4;
  EXPECT_THAT(answers.substr(0, second), HasSubstr("\r\ncontent-length: 2\r\n"));
  EXPECT_THAT(answers.substr(second), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(answers, testing::EndsWith("\r\n\r\nno"));
}

TEST_F(HttpServerTest, HeadOfAStreamEndsIt) {
  Serve();
  const std::string answer = Answer("HEAD /stream HTTP/1.1\r\nhost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"));
  EXPECT_THAT(answer, testing::EndsWith("connection: close\r\n\r\n"));
  EXPECT_EQ(handler_.parts, 1);
}

TEST_F(HttpServerTest, EmptyLinesBeforeARequestAreSkipped) {
  Serve();
  EXPECT_THAT(Answer("\r\n\r\nGET /echo HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Answer("\rGET /echo HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  const std::string answers = Answer(StrCat("\r\n", kGet, "\r\nGET /refused HTTP/1.0\r\n\r\n"));
  EXPECT_THAT(answers, HasSubstr("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answers, HasSubstr("HTTP/1.1 401 "));
}

TEST_F(HttpServerTest, LimitsHoldBeforeTheHandlerIsAsked) {
  Serve({.head_bytes = 512, .body_bytes = 64, .bodies_bytes = 64});
  EXPECT_THAT(Answer(Post("content-length: 65", "")), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Answer(Post("transfer-encoding: chunked", "41\r\n" + std::string(65, 'x'))), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Answer(Post("filling: " + std::string(600, 'x'), "")), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Answer(Post("transfer-encoding: chunked", "5;" + std::string(600, 'x'))), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Answer(Post("transfer-encoding: chunked", "0\r\nt: " + std::string(600, 'x'))), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Answer("GET /refused HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"), StartsWith("HTTP/1.1 401 "));
}

// What holds once the connections before are gone.
template <class Holds>
bool Eventually(Holds holds) {
  for (const absl::Time end = absl::Now() + absl::Minutes(1); absl::Now() < end;) {
    if (holds()) return true;
  }
  return false;
}

// The first bytes that come, "" where the server ended the connection without any; closes it.
std::string FirstBytes(int connection) {
  std::string bytes(15, '\0');
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(recv(connection, bytes.data(), bytes.size(), MSG_WAITALL), 0)));
  close(connection);
  return bytes;
}

TEST_F(HttpServerTest, ANewConnectionHasTimeToSendItsFirstRequest) {
  // A third one that finds room, since one of the two met a connection before them, ends when it is idle.
  Serve({.connections = 2, .silent_seconds = 3600, .idle_seconds = 1});
  EXPECT_TRUE(Eventually([&] {
    const int first = Connect(), second = Connect();
    const std::string third = Answer("");
    const std::string last = "GET /echo HTTP/1.0\r\n\r\n";
    for (const int connection : {first, second}) send(connection, last.data(), last.size(), MSG_NOSIGNAL);
    const std::vector<std::string> answers = {FirstBytes(first), FirstBytes(second)};
    return third.starts_with("HTTP/1.1 503 ") && answers == std::vector<std::string>(2, "HTTP/1.1 200 OK");
  }));
}

TEST_F(HttpServerTest, ASilentConnectionGivesWay) {
  Serve({.connections = 1, .silent_seconds = 0});
  EXPECT_TRUE(Eventually([&] {
    const int silent = Connect();
    const std::string answer = Answer("GET /echo HTTP/1.0\r\n\r\n");
    return FirstBytes(silent).empty() && answer.starts_with("HTTP/1.1 200 OK");
  }));
}

TEST_F(HttpServerTest, AClientThatGoesAwayIsToldOf) {
  Serve();
  const int connection = Ask("GET /kept HTTP/1.1\r\nhost: x\r\n\r\n");
  handler_.handled.WaitForNotification();
  close(connection);
  handler_.gone.WaitForNotification();
  handler_.kept->Write("nobody reads this", [] { FAIL(); });
  handler_.kept->EndStream("nor this");
  handler_.kept.reset();  // before the server ends
}

TEST_F(HttpServerTest, AClientThatLeavesWithItsWholeAnswerIsNotGone) {
  Serve();
  // The end of what it sends is known before its answer is on its way.
  EXPECT_THAT(Answer(kGet, /*and_leave=*/true), StartsWith("HTTP/1.1 200 OK\r\n"));
  End();
  EXPECT_THAT(lines_->last_formatted(), testing::Each(testing::Not(HasSubstr("\"gone\":true"))));
  EXPECT_THAT(lines_->last_formatted(), Contains(HasSubstr("\"gone\":false")).Times(2));
}

TEST_F(HttpServerTest, WhatIsWrittenAfterTheEndIsLetGoOf) {
  Serve();
  const int connection = Ask("GET /kept HTTP/1.1\r\nhost: x\r\n\r\n");
  handler_.handled.WaitForNotification();
  End();
  const auto let_go = std::make_shared<absl::Notification>();
  std::shared_ptr<void> held(nullptr, [let_go](void*) { let_go->Notify(); });
  handler_.kept->Write("nobody reads this", [held] { FAIL(); });
  held.reset();
  EXPECT_TRUE(let_go->WaitForNotificationWithTimeout(absl::Minutes(1)));
  handler_.kept.reset();  // before the server ends
  close(connection);
}

TEST_F(HttpServerTest, AStreamIsHeldBackByItsReader) {
  Serve();
  const int connection = Ask("GET /stream HTTP/1.1\r\nhost: x\r\n\r\n");
  std::string part(Handler::kPartBytes, '\0');
  EXPECT_EQ(recv(connection, part.data(), part.size(), MSG_WAITALL), Handler::kPartBytes);
  const int most_buffered = (64 << 20) / Handler::kPartBytes;  // more than two sockets hold
  EXPECT_LT(handler_.parts, most_buffered);
  close(connection);
  handler_.gone.WaitForNotification();
  EXPECT_LT(handler_.parts, most_buffered);
}

TEST_F(HttpServerTest, WhoTakesAnAnswerLongestIsGivenUpBeyondTheBoundOfAll) {
  Serve({.bodies_bytes = 20 << 20});
  std::vector<int> connections;
  for (int i = 0; i < 4; ++i) connections.push_back(AskForLarge());
  std::vector<bool> whole;
  for (const int connection : connections) whole.push_back(Rest(connection).size() > Handler::kLargeBytes);
  EXPECT_THAT(whole, ElementsAre(false, false, true, true));
  // What is taken does not count any more, and one alone may be larger than all may be.
  for (int i = 0; i < 3; ++i) EXPECT_GT(Rest(AskForLarge()).size(), Handler::kLargeBytes);
}

TEST_F(HttpServerTest, WhatIsKeptOfAnswersCountsWithWhatIsNotTaken) {
  Serve({.bodies_bytes = 20 << 20});
  const int asker = Ask("GET /kept HTTP/1.1\r\nhost: x\r\n\r\n");
  handler_.handled.WaitForNotification();
  const int first = AskForLarge();
  EXPECT_TRUE(handler_.kept->HoldAnswer(10 << 20));
  const int second = AskForLarge();
  EXPECT_LT(Rest(first).size(), Handler::kLargeBytes);
  EXPECT_TRUE(handler_.kept->HoldAnswer(12 << 20));
  EXPECT_FALSE(handler_.kept->HoldAnswer((20 << 20) + 1));
  EXPECT_LT(Rest(second).size(), Handler::kLargeBytes);
  close(asker);
  handler_.gone.WaitForNotification();
  handler_.kept.reset();  // before the server ends
}

// As of a name that stands for both.
TEST(Acceptors, AllAddressesOfANameHaveOnePort) {
  boost::asio::io_context io;
  const std::vector<std::string> hosts = {"127.0.0.1", "127.0.0.2"};
  std::vector<Acceptors::Endpoint> endpoints;
  for (const std::string& host : hosts) endpoints.emplace_back(boost::asio::ip::make_address(host), 0);
  Acceptors acceptors(boost::asio::make_strand(io));
  ASSERT_TRUE(acceptors.Open(endpoints, {"two", 0}).ok());
  std::vector<std::string> taken;
  acceptors.Accept([&](Socket socket) { taken.push_back(socket.local_endpoint().address().to_string()); });
  for (const std::string& host : hosts) {
    boost::asio::ip::tcp::socket client(io);
    client.connect({boost::asio::ip::make_address(host), static_cast<uint16_t>(acceptors.port())});
    while (taken.empty() || taken.back() != host) io.run_one();
  }
  EXPECT_EQ(taken, hosts);
  Acceptors others(boost::asio::make_strand(io));
  const auto port = static_cast<uint16_t>(acceptors.port());
  EXPECT_THAT(others.Open({{boost::asio::ip::make_address(hosts[1]), port}}, {"two", port}).message(), HasSubstr("in use"));
  acceptors.Close();
}

TEST(Acceptors, LackOfDescriptorsIsToldOfSeldom) {
  const auto lines = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(64);
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", lines));
  boost::asio::io_context io;
  Acceptors acceptors(boost::asio::make_strand(io));
  ASSERT_TRUE(acceptors.Open({{boost::asio::ip::make_address("127.0.0.1"), 0}}, {"one", 0}).ok());
  boost::asio::ip::tcp::socket client(io);
  client.connect({boost::asio::ip::make_address("127.0.0.1"), static_cast<uint16_t>(acceptors.port())});
  acceptors.Accept([](Socket) {});
  io.poll();  // the socket is known to the poller
  boost::asio::ip::tcp::socket second(io);
  second.connect({boost::asio::ip::make_address("127.0.0.1"), static_cast<uint16_t>(acceptors.port())});
  // UBSan's first look at a class takes descriptors, so each class has been seen before they are gone.
  spdlog::warn("{} {}", Clock::Real().NowNanos(), boost::system::error_code(EMFILE, boost::system::system_category()).message());
  {
    const ResourceLimit none(RLIMIT_NOFILE, 3);
    for (int i = 0; i < 5; ++i) {
      acceptors.Accept([](Socket) { FAIL(); });
      io.run_one();
    }
  }
  EXPECT_THAT(lines->last_formatted(), ElementsAre(_, HasSubstr("no connection could be taken, in 1 attempts")));
  acceptors.Close();
}

TEST_F(HttpServerTest, DamagedRequestsHarmNobody) {
  Serve({.body_bytes = 4096, .bodies_bytes = 1 << 20});
  const std::vector<std::string> whole = {kGet, Post("content-length: 5", "hello"),
                                          Post("transfer-encoding: chunked", "5;a=b\r\nhello\r\n0\r\nt: v\r\n\r\n"),
                                          Post("expect: 100-continue\r\ncontent-length: 5", "hello")};
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string bytes = whole[round % whole.size()];
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      const size_t at = random() % bytes.size();
      bytes[at] = static_cast<char>(random());
    }
    bytes.resize(bytes.size() - random() % 4);
    Answer(bytes, /*and_leave=*/true);
  }
  EXPECT_THAT(Answer(StrCat(kGet, "GET /echo HTTP/1.0\r\n\r\n")), StartsWith("HTTP/1.1 200 OK\r\n"));
}

}  // namespace
}  // namespace moed::http
