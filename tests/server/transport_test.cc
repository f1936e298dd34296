// What gRPC itself does around the services: ports, keepalive, reflection, bytes that are no request.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "google/protobuf/stubs/logging.h"
#include "server/wire/call_guard.h"
#include "server/wire/inlet.h"
#include "spdlog/spdlog.h"
#include "tests/server/server_harness.h"
#include "tests/store/small_store.h"

namespace moed {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A TCP socket on loopback, without gRPC.
class PlainSocket {
 public:
  PlainSocket() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~PlainSocket() { close(fd_); }
  PlainSocket(const PlainSocket&) = delete;
  PlainSocket& operator=(const PlainSocket&) = delete;

  bool BindTo(int port, bool reuse_port) {
    const int on = reuse_port ? 1 : 0;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    const sockaddr_in address = Loopback(port);
    return bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 && listen(fd_, 1) == 0;
  }
  bool ConnectTo(int port) {
    const sockaddr_in address = Loopback(port);
    return connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  int port() const {
    sockaddr_in address{};
    socklen_t length = sizeof(address);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    return ntohs(address.sin_port);
  }
  void Send(const std::string& bytes) { ASSERT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size())); }
  // Exactly `size` bytes; fewer when the other side closed.
  std::string Receive(size_t size) {
    std::string bytes(size, '\0');
    const ssize_t n = recv(fd_, bytes.data(), size, MSG_WAITALL);
    bytes.resize(n < 0 ? 0 : n);
    return bytes;
  }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }
  const int fd_;
};

// gRPC starts no server without a service: where there is none, reflection is one.

// The server end of an HTTP/2 connection sees: the preface, settings, and then frames as the test likes, which gRPC's own client
// would not send. The server's settings are never acknowledged.
class FrameClient {
 public:
  enum Type : uint8_t { kHeaders = 1, kSettings = 4, kPing = 6, kGoAway = 7 };

  explicit FrameClient(int port) {
    EXPECT_TRUE(socket_.ConnectTo(port));
    socket_.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, ""));
  }
  // All in one packet: the server cuts a client off as soon as it has seen too many, and then nothing more can be sent.
  void Ping(int count = 1) {
    std::string frames;
    for (int i = 0; i < count; ++i) frames += Frame(kPing, "8 bytes.");
    socket_.Send(frames);
  }
  void AnswerPing(const std::string& payload) { socket_.Send(Frame(kPing, payload, kAcknowledgement)); }
  // By headers alone, whose messages never come.
  void BeginCalls(int count) {
    const std::string path = "/grpc.health.v1.Health/Check", type = "application/grpc";
    const auto text = [](const std::string& value) { return static_cast<char>(value.size()) + value; };
    const std::string post_by_http = "\x83\x86", of_authority = "\x01", of_path = "\x04", of_content_type = "\x0f\x10",
                      of_new_name(1, '\0');
    const std::string fields = post_by_http + of_authority + text("moed") + of_path + text(path) + of_content_type + text(type) +
                               of_new_name + text("te") + text("trailers");
    std::string frames;
    for (int i = 0; i < count; ++i, next_stream_ += 2) frames += Frame(kHeaders, fields, kEndOfHeaders, next_stream_);
    socket_.Send(frames);
  }
  // The payload of the next ping's answer or of a GOAWAY; "" when the server closed.
  std::string Answer() {
    while (true) {
      const std::string head = socket_.Receive(9);
      if (head.size() < 9) return "";
      const auto byte = [&](int i) { return static_cast<size_t>(static_cast<uint8_t>(head[i])); };
      std::string payload = socket_.Receive(byte(0) << 16 | byte(1) << 8 | byte(2));
      if (byte(3) == kPing || byte(3) == kGoAway) return payload;
    }
  }

 private:
  static constexpr char kEndOfHeaders = 4;
  static constexpr char kAcknowledgement = 1;

  static std::string Frame(Type type, const std::string& payload, char flags = 0, int stream = 0) {
    const char head[] = {0, 0, static_cast<char>(payload.size()), static_cast<char>(type),  flags,
                         0, 0, static_cast<char>(stream >> 8),    static_cast<char>(stream)};
    return std::string(head, sizeof(head)) + payload;
  }
  PlainSocket socket_;
  int next_stream_ = 1;
};

TEST(KeepaliveTest, PingsAreAnsweredHoweverManyAlsoWithoutACall) {
  grpc::ResourceQuota quota;
  const auto listening = RpcServer::Listen({"127.0.0.1", 0}, {}, quota, {.reflection = true});
  ASSERT_TRUE(listening.ok()) << listening.status();
  FrameClient client((*listening)->address().port);
  client.Ping(100);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(client.Answer(), "8 bytes.") << "ping " << i;
}

TEST(InletTest, WhatGrpcReadsPassesIt) {
  ServerHarness server;
  const uint64_t before = BytesReceived();
  moe::v1::GenerateResponse response;
  grpc::ClientContext context;
  EXPECT_FALSE(server.inference().Generate(&context, TextRequest(std::string(20'000, 'x')), &response).ok());  // too long
  EXPECT_GE(BytesReceived() - before, 20'000u);
}

TEST(CallGuardTest, WhoBeginsMoreCallsThanMayBeOpenIsCutOffAndNobodyElse) {
  spdlog::set_level(spdlog::level::off);
  grpc::ResourceQuota quota;
  const auto server = *RpcServer::Listen({"127.0.0.1", 0}, {}, quota, {.reflection = true});
  server->SetServing(true);
  const CallGuard guard({server->address()}, /*most_calls=*/16, /*most_of_one=*/8, /*message_bytes=*/16 << 20);
  const auto polite = grpc::CreateChannel(server->address().Text(), grpc::InsecureChannelCredentials());
  const auto is_served = [&] { return CheckHealth(polite, "") == Health::kServing; };
  EXPECT_TRUE(is_served());
  FrameClient greedy(server->address().port);
  greedy.BeginCalls(100);
  for (std::string ping; !(ping = greedy.Answer()).empty();) greedy.AnswerPing(ping);  // it is not cut off for being silent
  while (!is_served()) {
  }
}

class UnixSocket {
 public:
  explicit UnixSocket(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    path.copy(address_.sun_path, sizeof(address_.sun_path) - 1);
  }
  ~UnixSocket() { close(fd_); }
  UnixSocket(const UnixSocket&) = delete;
  UnixSocket& operator=(const UnixSocket&) = delete;

  bool Bind() { return bind(fd_, reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)) == 0; }
  bool Connect() { return connect(fd_, reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)) == 0; }
  // Whether the server begins HTTP/2, or closes.
  bool IsServed() const {
    char byte;
    return recv(fd_, &byte, 1, 0) == 1;
  }

 private:
  const int fd_;
  sockaddr_un address_{.sun_family = AF_UNIX};
};

TEST(ConnectionTest, AUnixSocketServesUpToItsLimitAndIsRemovedInTheEnd) {
  spdlog::set_level(spdlog::level::off);
  const MemoryFolder folder;
  const std::string path = folder / "socket";
  grpc::ResourceQuota quota;
  const auto listen = [&] {
    return RpcServer::Listen(Address{.path = path}, {}, quota, {.max_connections = 1, .reflection = true});
  };
  auto server = listen();
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->address().Text(), "unix:" + path);
  UnixSocket first(path), second(path);
  ASSERT_TRUE(first.Connect());
  EXPECT_TRUE(first.IsServed());
  ASSERT_TRUE(second.Connect());
  EXPECT_FALSE(second.IsServed());
  EXPECT_THAT(std::string(listen().status().message()), HasSubstr(path)) << "somebody listens there";
  server->reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ConnectionTest, AnAbandonedUnixSocketIsReplacedAndAFileIsNot) {
  const MemoryFolder folder;
  const std::string path = folder / "socket";
  ASSERT_TRUE(UnixSocket(path).Bind());
  grpc::ResourceQuota quota;
  const auto listen = [&] { return RpcServer::Listen(Address{.path = path}, {}, quota, {.reflection = true}).status(); };
  EXPECT_TRUE(listen().ok());
  std::ofstream(path) << "mine";
  EXPECT_FALSE(listen().ok());
  EXPECT_EQ(std::filesystem::file_size(path), 4u);
}

TEST(ConnectionTest, MoreThanAreAllowedAreClosedUntilOthersAre) {
  spdlog::set_level(spdlog::level::off);
  grpc::ResourceQuota quota;
  const auto listening = *RpcServer::Listen({"127.0.0.1", 0}, {}, quota, {.max_connections = 2, .reflection = true});
  const int port = listening->address().port;
  auto first = std::make_unique<FrameClient>(port), second = std::make_unique<FrameClient>(port);
  for (FrameClient* client : {first.get(), second.get()}) {
    client->Ping();
    EXPECT_EQ(client->Answer(), "8 bytes.");
  }
  PlainSocket third;
  ASSERT_TRUE(third.ConnectTo(port));
  EXPECT_EQ(third.Receive(1), "");
  EXPECT_EQ(listening->refused_connections(), 1u);
  second->Ping();
  EXPECT_EQ(second->Answer(), "8 bytes.") << "who is there stays";
  first.reset();
  std::string taken;  // once the server has seen that the first is gone
  while (taken.empty()) {
    PlainSocket next;
    ASSERT_TRUE(next.ConnectTo(port));
    taken = next.Receive(1);
  }
}

TEST(ConnectionTest, WithoutCallsItIsClosed) {
  grpc::ResourceQuota quota;
  const auto listening = *RpcServer::Listen({"127.0.0.1", 0}, {}, quota, {.max_idle_ms = 1, .reflection = true});
  FrameClient client(listening->address().port);
  EXPECT_THAT(client.Answer(), HasSubstr("idle"));
}

TEST(ConnectionTest, WhoSaysNothingIsClosed) {
  grpc::ResourceQuota quota;
  const auto listening = *RpcServer::Listen({"127.0.0.1", 0}, {}, quota, {.handshake_ms = 1, .reflection = true});
  PlainSocket silent;
  ASSERT_TRUE(silent.ConnectTo(listening->address().port));
  while (!silent.Receive(1).empty()) {
  }
}

TEST(ListenTest, ASecondServerOnThePortIsRefused) {
  ServerHarness server;
  grpc::ResourceQuota quota;
  const auto second = RpcServer::Listen(server.server().address(), {}, quota, {.reflection = true});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().ToString(), HasSubstr("in use"));
  EXPECT_THAT(second.status().ToString(), HasSubstr(server.server().address().Text()));
  const auto metrics = MetricsServer::Listen(server.metrics_address(), {});
  ASSERT_FALSE(metrics.ok());
  EXPECT_THAT(metrics.status().ToString(), HasSubstr("in use"));
}

TEST(ListenTest, APortOfAnotherProgramIsRefused) {
  PlainSocket other;
  ASSERT_TRUE(other.BindTo(0, /*reuse_port=*/false));
  grpc::ResourceQuota quota;
  const Address taken{"127.0.0.1", other.port()};
  for (const absl::Status& status :
       {RpcServer::Listen(taken, {}, quota, {.reflection = true}).status(), MetricsServer::Listen(taken, {}).status()}) {
    EXPECT_THAT(status.ToString(), HasSubstr("in use"));
    EXPECT_THAT(status.ToString(), HasSubstr(taken.Text()));
  }
}

// With SO_REUSEPORT, which is gRPC's default, the kernel would give a second listener every other call.
TEST(ListenTest, ThePortIsNotShared) {
  PlainSocket shared, sharing;
  ASSERT_TRUE(shared.BindTo(0, /*reuse_port=*/true));
  ASSERT_TRUE(sharing.BindTo(shared.port(), /*reuse_port=*/true)) << "two that both want to can share";
  ServerHarness server;
  PlainSocket thief;
  EXPECT_FALSE(thief.BindTo(server.server().address().port, /*reuse_port=*/true));
}

TEST(ListenTest, AddressesThatAreNotOursAreRefused) {
  grpc::ResourceQuota quota;
  for (const char* host : {"192.0.2.1", "no host"}) {
    const auto server = RpcServer::Listen({host, 0}, {}, quota, {.reflection = true});
    ASSERT_FALSE(server.ok()) << host;
    EXPECT_THAT(server.status().ToString(), HasSubstr(host));
  }
}

TEST(UndecodableTest, BytesThatAreNoRequestDoNotHurtTheServer) {
  const google::protobuf::LogSilencer silencer;  // says which field is no UTF-8
  ServerHarness server;
  const auto channel = server.Channel();
  const std::string kBytes[] = {
      "\xff\xff\xff\xff", std::string("\x12\x02\xc3\x28", 4),  // a field of text that is not UTF-8
      "\x12\x7f short",                                        // a field longer than the message
      "\x0b\x0b\x0b",                                          // groups that do not end
  };
  for (const std::string& bytes : kBytes) {
    for (const char* method : {"Generate", "GenerateStream", "Score", "Tokenize"}) {
      SCOPED_TRACE(testing::Message() << method << " " << testing::PrintToString(bytes));
      EXPECT_FALSE(CallRaw(channel, std::string("/moe.v1.Inference/") + method, bytes).ok());
    }
  }
  EXPECT_TRUE(server.engine().Idle());
  while (server.live().size() > 0) std::this_thread::yield();
  server.RunFreely();
  moe::v1::GenerateResponse response;
  grpc::ClientContext context;
  EXPECT_TRUE(server.inference().Generate(&context, TextRequest("x"), &response).ok());
}

// grpc.reflection.v1alpha: {7: list_services} and {4: file_containing_symbol}; no package brings its proto.
TEST(ReflectionTest, NamesTheServicesAndGivesTheirFilesWhereItIsAskedFor) {
  ServerHarness server({.reflection = true});
  const auto ask = [&](char field, const std::string& value) {
    std::string response;
    const std::string request = std::string(1, static_cast<char>(field << 3 | 2)) + static_cast<char>(value.size()) + value;
    const grpc::Status status =
        CallRaw(server.Channel(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  };
  const std::string services = ask(7, "*");
  for (const char* service : {"moe.v1.Inference", "moe.v1.Control", "grpc.health.v1.Health"}) {
    EXPECT_THAT(services, HasSubstr(service));
  }
  const std::string file = ask(4, "moe.v1.Inference");
  for (const char* name : {"GenerateStream", "Detokenize", "moe/v1/inference.proto"}) EXPECT_THAT(file, HasSubstr(name));
  EXPECT_THAT(ask(4, "no.such.Symbol"), Not(HasSubstr("proto")));
  ServerHarness silent;  // also where another server of the process has it
  const grpc::Status status = CallRaw(silent.Channel(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace moed
