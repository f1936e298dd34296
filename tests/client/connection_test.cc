// What a client makes of a server that is slow, or no longer there.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>

#include "client/load_generator.h"
#include "core/base/status.h"
#include "tests/server/server_harness.h"

namespace moed {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Between one client and a server, until the network is lost: then nothing passes, and nothing is closed.
class LosingProxy {
 public:
  explicit LosingProxy(int server_port) : server_(socket(AF_INET, SOCK_STREAM, 0)), listening_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in own = Loopback(0);
    const sockaddr_in server = Loopback(server_port);
    socklen_t size = sizeof(own);
    EXPECT_EQ(connect(server_, reinterpret_cast<const sockaddr*>(&server), sizeof(server)), 0);
    EXPECT_EQ(bind(listening_, reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
    EXPECT_EQ(listen(listening_, 1), 0);
    EXPECT_EQ(getsockname(listening_, reinterpret_cast<sockaddr*>(&own), &size), 0);
    port_ = ntohs(own.sin_port);
    thread_ = std::thread([this] { Pass(); });
  }
  ~LosingProxy() {
    Lose();
    for (const int fd : {client_, server_, listening_}) close(fd);
  }
  std::string address() const { return StrCat("127.0.0.1:", port_); }
  void Lose() {
    lost_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Pass() {
    client_ = accept(listening_, nullptr, nullptr);
    std::array<pollfd, 2> ends = {pollfd{client_, POLLIN, 0}, pollfd{server_, POLLIN, 0}};
    for (char bytes[4096]; !lost_;) {
      if (poll(ends.data(), ends.size(), 10) <= 0) continue;
      for (size_t i = 0; i < ends.size(); ++i) {
        if ((ends[i].revents & POLLIN) == 0) continue;
        const ssize_t count = read(ends[i].fd, bytes, sizeof(bytes));
        if (count <= 0) return;
        EXPECT_EQ(send(ends[1 - i].fd, bytes, static_cast<size_t>(count), MSG_NOSIGNAL), count);
      }
    }
  }

  const int server_, listening_;
  int client_ = -1;
  int port_ = 0;
  std::atomic<bool> lost_{false};
  std::thread thread_;
};

moe::v1::GenerateRequest AnyRequest() {
  moe::v1::GenerateRequest request;
  request.set_text("x");
  return request;
}

TEST(ClientConnection, ACallOverALostNetworkEnds) {
  ServerHarness server;  // its engine does not step: the answer does not come
  LosingProxy proxy(server.server().address().port);
  auto client = Client::Connect(proxy.address(), {.keepalive_seconds = 1});
  ASSERT_TRUE(client.ok()) << client.status();
  absl::Status status;
  std::thread call(
      [&] { status = (*client)->GenerateStream(AnyRequest(), [](const moe::v1::GenerateResponse&) { return true; }); });
  while (server.live().size() == 0) std::this_thread::yield();
  proxy.Lose();
  call.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  server.StepUntilIdle();
}

TEST(ClientConnection, ACancellationKnowsTheCallsUnderWayAlone) {
  ServerHarness server;
  server.RunFreely();
  auto client = Client::Connect(server.server().address().Text());
  ASSERT_TRUE(client.ok()) << client.status();
  Cancellation cancellation;
  const auto generate = [&] {
    return (*client)->GenerateStream(
        AnyRequest(), [](const moe::v1::GenerateResponse&) { return true; }, &cancellation);
  };
  EXPECT_TRUE(generate().ok());
  cancellation.Cancel();  // of a call that has ended
  EXPECT_TRUE(absl::IsCancelled(generate()));
}

// All arrive at once and one is answered after the other: who waited for the others has waited.
TEST(ClientConnection, LoadIsMeasuredFromWhenRequestsArrive) {
  ServerHarness server;
  server.RunFreely();
  auto client = Client::Connect(server.server().address().Text());
  ASSERT_TRUE(client.ok()) << client.status();
  Cancellation cancellation;
  double wall_seconds = 0;
  const LoadOptions options{.requests = 30, .concurrency = 1, .arrivals_per_second = 1e9};
  const auto samples = GenerateLoad(**client, {"x"}, AnyRequest(), options, cancellation, &wall_seconds);
  ASSERT_EQ(samples.size(), 30u);
  for (size_t i = 1; i < samples.size(); ++i) {
    ASSERT_TRUE(samples[i].status.ok()) << samples[i].status;
    EXPECT_GT(samples[i].ttft_seconds, samples[i - 1].ttft_seconds) << i;
    EXPECT_GT(samples[i].latency_seconds, samples[i - 1].latency_seconds) << i;
  }
}

}  // namespace
}  // namespace moed
