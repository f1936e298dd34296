#include "server/wire/message_guard.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "server/wire/own_sockets.h"
#include "server/wire/taken_messages.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

constexpr int64_t kMiB = 1 << 20;

std::vector<int> Ended(std::vector<Sender> senders, uint64_t most) {
  std::vector<int> descriptors;
  for (const Sender& sender : LargestSenders(std::move(senders), most)) descriptors.push_back(sender.descriptor);
  return descriptors;
}

TEST(LargestSenders, NoMoreThanHaveTo) {
  EXPECT_TRUE(Ended({}, 0).empty());
  EXPECT_TRUE(Ended({{1, 60}, {2, 40}}, 100).empty());
  EXPECT_EQ(Ended({{1, 60}, {2, 41}}, 100), std::vector<int>{1});
  EXPECT_EQ(Ended({{1, 3}, {2, 500}, {3, 900}, {4, 0}}, 100), (std::vector<int>{3, 2}));
}

// This side's ends of connections to an address of its own.
class MessageGuardTest : public ::testing::Test {
 protected:
  static constexpr int kClients = 3;

  void SetUp() override {
    spdlog::set_level(spdlog::level::off);
    TakenMessages(/*forget=*/true);  // of tests before
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t length = sizeof(address);
    auto* at = reinterpret_cast<sockaddr*>(&address);
    const int received = kMiB;  // that waits unread, whatever this machine's default
    ASSERT_EQ(setsockopt(listener_, SOL_SOCKET, SO_RCVBUF, &received, sizeof(received)), 0);
    ASSERT_EQ(bind(listener_, at, length), 0);
    ASSERT_EQ(listen(listener_, kClients), 0);
    ASSERT_EQ(getsockname(listener_, at, &length), 0);
    listening_ = {{.host = "127.0.0.1", .port = ntohs(address.sin_port)}};
    for (int i = 0; i < kClients; ++i) {
      clients_.push_back(socket(AF_INET, SOCK_STREAM, 0));
      ASSERT_EQ(connect(clients_.back(), at, length), 0);
      accepted_.push_back(accept(listener_, nullptr, nullptr));
      ASSERT_GE(accepted_.back(), 0);
    }
  }
  void TearDown() override {
    for (const std::vector<int>& side : {clients_, accepted_, {listener_}}) {
      for (const int descriptor : side) close(descriptor);
    }
  }

  // Through one connection to its other side, which reads it.
  void Send(int client, int64_t bytes) const {
    std::string piece(1 << 16, 'x');
    for (; bytes > 0; bytes -= static_cast<int64_t>(piece.size())) {
      ASSERT_EQ(send(clients_[client], piece.data(), piece.size(), 0), static_cast<ssize_t>(piece.size()));
      ASSERT_EQ(recv(accepted_[client], piece.data(), piece.size(), MSG_WAITALL), static_cast<ssize_t>(piece.size()));
    }
  }
  // The client's own.
  int Port(int client) const {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    EXPECT_EQ(getsockname(clients_[client], reinterpret_cast<sockaddr*>(&address), &length), 0);
    return PortOf(address);
  }
  std::vector<bool> Open() const {
    std::vector<bool> open;
    for (const int descriptor : accepted_) {
      sockaddr_in peer{};
      socklen_t length = sizeof(peer);
      open.push_back(getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) == 0);
    }
    return open;
  }

  static void Look(MessageGuard& guard, int64_t bytes) { guard.Look({.resident = bytes, .touched = bytes}); }

  int listener_ = -1;
  std::vector<int> clients_, accepted_;
  std::vector<Address> listening_;
};

TEST_F(MessageGuardTest, WhoSentMostIsEndedWhereTheProcessHasGrown) {
  Send(2, 8 * kMiB);  // before
  MessageGuard guard(listening_, 12 * kMiB);
  Look(guard, 50 * kMiB);
  Send(0, 1 * kMiB);
  Send(1, 8 * kMiB);
  Look(guard, 62 * kMiB);
  EXPECT_EQ(Open(), (std::vector<bool>{true, true, true})) << "12 MiB more may be taken";
  Look(guard, 63 * kMiB);
  EXPECT_EQ(Open(), (std::vector<bool>{true, false, true}));
}

TEST_F(MessageGuardTest, NobodyIsEndedForWhatGrewWithoutMessages) {
  MessageGuard guard(listening_, 12 * kMiB);
  Look(guard, 50 * kMiB);
  Send(1, 10 * kMiB);
  Look(guard, 500 * kMiB);
  EXPECT_EQ(Open(), (std::vector<bool>{true, true, true}));
}

TEST_F(MessageGuardTest, NobodyIsEndedForWhatOthersThanReceiversUse) {
  MessageGuard guard(listening_, 12 * kMiB);
  guard.Look({.resident = 50 * kMiB, .touched = 50 * kMiB});
  Send(1, 1 * kMiB);
  EXPECT_EQ(guard.Look({.resident = 90 * kMiB, .touched = 51 * kMiB}), MessageGuard::State::kCalm);
  EXPECT_EQ(Open(), (std::vector<bool>{true, true, true}));
}

TEST_F(MessageGuardTest, NobodyIsEndedForMessagesThatAreThere) {
  MessageGuard guard(listening_, 12 * kMiB);
  Look(guard, 50 * kMiB);
  Send(1, 8 * kMiB);
  CountTaken(StrCat("ipv4:127.0.0.1:", Port(1)), 8 * kMiB);
  Send(0, 2 * kMiB);
  Look(guard, 63 * kMiB);
  EXPECT_EQ(Open(), (std::vector<bool>{false, true, true}));
}

// The kernel had received most of it before; it takes room once it is read.
TEST_F(MessageGuardTest, WhatWaitedToBeReadCountsOnceItIs) {
  std::string piece(96 << 10, 'x');
  ASSERT_EQ(send(clients_[1], piece.data(), piece.size(), 0), static_cast<ssize_t>(piece.size()));
  ASSERT_EQ(recv(accepted_[1], piece.data(), piece.size(), MSG_WAITALL | MSG_PEEK), static_cast<ssize_t>(piece.size()));
  MessageGuard guard(listening_, 12 * kMiB);
  Look(guard, 50 * kMiB);
  ASSERT_EQ(recv(accepted_[1], piece.data(), piece.size(), MSG_WAITALL), static_cast<ssize_t>(piece.size()));
  Send(1, 64 << 10);
  Look(guard, 50 * kMiB + (12 * kMiB / 3) + 1);
  EXPECT_EQ(Open(), (std::vector<bool>{true, false, true}));
}

TEST_F(MessageGuardTest, HeadersEndTheirSendersBeforeMessagesWould) {
  for (const bool messages : {true, false}) {
    SCOPED_TRACE(messages);
    TakenMessages(/*forget=*/true);
    MessageGuard guard(listening_, 12 * kMiB);
    Look(guard, 50 * kMiB);
    Send(1, kMiB / 2);
    if (messages) Send(0, kMiB);  // that are not whole
    if (messages) CountTaken(StrCat("ipv4:127.0.0.1:", Port(2)), kMiB);
    Look(guard, 59 * kMiB);
    EXPECT_EQ(Open(), (std::vector<bool>{true, messages, true}));
  }
}

TEST_F(MessageGuardTest, AfterItHasEndedOneWhatIsReadIsEnough) {
  MessageGuard guard(listening_, 12 * kMiB);
  Look(guard, 50 * kMiB);
  Send(0, 8 * kMiB);
  Look(guard, 63 * kMiB);
  ASSERT_EQ(Open(), (std::vector<bool>{false, true, true}));
  Send(1, kMiB);
  while (Open()[1]) Look(guard, 40 * kMiB);  // within what the first has left
  EXPECT_TRUE(Open()[2]);
}

}  // namespace
}  // namespace moed
