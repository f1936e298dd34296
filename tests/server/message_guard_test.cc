#include "server/wire/message_guard.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "server/wire/connection_bytes.h"
#include "server/wire/peer_name.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"
#include "tests/temporary_folder.h"

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
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    sockaddr_storage bound = Connect(reinterpret_cast<sockaddr*>(&address), sizeof(address));
    listening_ = {{.host = "127.0.0.1", .port = ntohs(reinterpret_cast<sockaddr_in&>(bound).sin_port)}};
  }
  void TearDown() override {
    for (const std::vector<int>& side : {clients_, accepted_, {listener_}}) {
      for (const int descriptor : side) close(descriptor);
    }
  }

  // All of them. Where it listens.
  sockaddr_storage Connect(const sockaddr* address, socklen_t length) {
    spdlog::set_level(spdlog::level::off);
    sockaddr_storage bound{};
    auto* at = reinterpret_cast<sockaddr*>(&bound);
    socklen_t bound_length = sizeof(bound);
    listener_ = socket(address->sa_family, SOCK_STREAM, 0);
    const int received = kMiB;  // that waits unread, whatever this machine's default
    EXPECT_EQ(setsockopt(listener_, SOL_SOCKET, SO_RCVBUF, &received, sizeof(received)), 0);
    EXPECT_EQ(bind(listener_, address, length), 0);
    EXPECT_EQ(listen(listener_, kClients), 0);
    EXPECT_EQ(getsockname(listener_, at, &bound_length), 0);
    for (int i = 0; i < kClients; ++i) {
      clients_.push_back(socket(address->sa_family, SOCK_STREAM, 0));
      EXPECT_EQ(connect(clients_.back(), at, bound_length), 0);
      accepted_.push_back(accept(listener_, nullptr, nullptr));
      EXPECT_GE(accepted_.back(), 0);
      CountConnection(accepted_.back());
    }
    return bound;
  }

  // Through one connection to its other side, which reads it.
  void Send(int client, int64_t bytes) const {
    std::string piece(1 << 16, 'x');
    for (; bytes > 0; bytes -= static_cast<int64_t>(piece.size())) {
      ASSERT_EQ(send(clients_[client], piece.data(), piece.size(), 0), static_cast<ssize_t>(piece.size()));
      Read(client, piece);
    }
  }
  void Read(int client, std::string& piece) const {
    iovec into{piece.data(), piece.size()};
    msghdr message{};
    message.msg_iov = &into;
    message.msg_iovlen = 1;
    ASSERT_EQ(recvmsg(accepted_[client], &message, MSG_WAITALL), static_cast<ssize_t>(piece.size()));
  }
  // As gRPC names the client.
  std::string Peer(int client) const {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    EXPECT_EQ(getsockname(clients_[client], reinterpret_cast<sockaddr*>(&address), &length), 0);
    return PeerName(address);
  }
  // What has not ended, for whoever reads it.
  std::vector<bool> Open() const {
    std::vector<bool> open;
    for (const int descriptor : accepted_) {
      char byte = 0;
      open.push_back(recv(descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == -1 && errno == EAGAIN);
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

// The budget's own memory is used little by little; receivers may touch as much without growing by it.
TEST_F(MessageGuardTest, NobodyIsEndedForBuffersThatFill) {
  auto buffer = Buffer::Allocate(40 * kMiB);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  MessageGuard guard(listening_, 12 * kMiB);
  Look(guard, 50 * kMiB);
  Send(1, 8 * kMiB);
  std::ranges::fill(buffer->span(), std::byte{1});
  Look(guard, (50 + 40) * kMiB);
  EXPECT_EQ(Open(), (std::vector<bool>{true, true, true}));
  Look(guard, (50 + 40 + 13) * kMiB);
  EXPECT_EQ(Open(), (std::vector<bool>{true, false, true}));
}

TEST_F(MessageGuardTest, ThatBuffersAreNotSeenIsSaidOnce) {
  std::ostringstream lines;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines)));
  const Buffer buffer = Buffer::Allocate(kPageBytes).value();
  ASSERT_EQ(munmap(buffer.data(), kPageBytes), 0);  // the kernel tells nothing of what is not mapped
  MessageGuard guard(listening_, 12 * kMiB);
  Look(guard, 50 * kMiB);
  Look(guard, 70 * kMiB);
  ASSERT_EQ(mmap(buffer.data(), kPageBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), buffer.data());
  spdlog::set_default_logger(before);
  const std::string told = lines.str();
  EXPECT_NE(told.find("taken for a flood"), std::string::npos) << told;
  EXPECT_EQ(std::ranges::count(told, '\n'), 1) << told;
}

TEST_F(MessageGuardTest, NobodyIsEndedForMessagesThatAreThere) {
  MessageGuard guard(listening_, 12 * kMiB);
  Look(guard, 50 * kMiB);
  Send(1, 8 * kMiB);
  CountTaken(Peer(1), 8 * kMiB);
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
  Read(1, piece);
  Send(1, 64 << 10);
  Look(guard, 50 * kMiB + (12 * kMiB / 3) + 1);
  EXPECT_EQ(Open(), (std::vector<bool>{true, false, true}));
}

TEST_F(MessageGuardTest, HeadersEndTheirSendersBeforeMessagesWould) {
  for (const bool messages : {true, false}) {
    SCOPED_TRACE(messages);
    MessageGuard guard(listening_, 12 * kMiB);
    Look(guard, 50 * kMiB);
    Send(1, kMiB / 2);
    if (messages) Send(0, kMiB);  // that are not whole
    if (messages) CountTaken(Peer(2), kMiB);
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

// Whoever has made many calls has paid for none of what follows.
TEST_F(MessageGuardTest, CallsPayForNoMoreThanWasSentBeforeThem) {
  MessageGuard guard(listening_, 12 * kMiB);
  Look(guard, 50 * kMiB);
  Send(1, 64 << 10);
  for (int call = 0; call < 100'000; ++call) CountTaken(Peer(1), 0);
  Send(1, 1 * kMiB);
  Look(guard, 63 * kMiB);
  EXPECT_EQ(Open(), (std::vector<bool>{true, false, true}));
}

TEST_F(MessageGuardTest, ACallPaysForItsMessageAndLittleMore) {
  MessageGuard guard(listening_, 12 * kMiB);
  Look(guard, 50 * kMiB);
  Send(1, 1 * kMiB);
  for (int call = 0; call < 1000; ++call) CountTaken(Peer(1), 1);  // a quarter
  Look(guard, 63 * kMiB);
  EXPECT_EQ(Open(), (std::vector<bool>{true, false, true}));
}

TEST_F(MessageGuardTest, CallsHideNoHeaders) {
  MessageGuard guard(listening_, 12 * kMiB);
  Look(guard, 50 * kMiB);
  Send(0, 2 * kMiB);
  for (int call = 0; call < 8192; ++call) CountTaken(Peer(0), 0);
  Send(1, kMiB / 2);
  Look(guard, 59 * kMiB);
  EXPECT_EQ(Open(), (std::vector<bool>{true, false, true}));
}

TEST_F(MessageGuardTest, BeyondTwiceWhatItMayWholeMessagesCountToo) {
  for (const int64_t grown : {24, 25}) {
    MessageGuard guard(listening_, 12 * kMiB);
    Look(guard, 50 * kMiB);
    Send(1, 8 * kMiB);
    CountTaken(Peer(1), 8 * kMiB);
    Look(guard, (50 + grown) * kMiB);
    EXPECT_EQ(Open(), (std::vector<bool>{true, grown == 24, true}));
  }
}

TEST_F(MessageGuardTest, ADescriptorThatIsUsedAgainBeginsAnew) {
  MessageGuard guard(listening_, 12 * kMiB);
  Look(guard, 50 * kMiB);
  Send(1, 8 * kMiB);
  CountConnection(accepted_[1]);
  Send(0, 1 * kMiB);
  Look(guard, 63 * kMiB);
  EXPECT_EQ(Open(), (std::vector<bool>{false, true, true}));
}

class MessageGuardOfUnixSocketsTest : public MessageGuardTest {
 protected:
  void SetUp() override {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    listening_ = {{.path = folder_ / "socket"}};
    listening_[0].path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    Connect(reinterpret_cast<sockaddr*>(&address), sizeof(address));
  }

  TemporaryFolder folder_;
};

TEST_F(MessageGuardOfUnixSocketsTest, WhoSentMostIsEndedWithWhatWaitsToBeRead) {
  MessageGuard guard(listening_, 12 * kMiB);
  Look(guard, 50 * kMiB);
  Send(0, 1 * kMiB);
  Send(1, 8 * kMiB);
  ASSERT_EQ(send(clients_[1], "unread", 6, 0), 6);
  Look(guard, 63 * kMiB);
  char byte = 0;
  EXPECT_EQ(recv(accepted_[1], &byte, 1, MSG_DONTWAIT), 0) << "the end, before what was sent";
  EXPECT_EQ(Open(), (std::vector<bool>{true, false, true}));
}

TEST_F(MessageGuardOfUnixSocketsTest, MessagesThatAreThereEndNobodyAndPayForNobodyElse) {
  MessageGuard guard(listening_, 12 * kMiB);
  Look(guard, 50 * kMiB);
  Send(0, 8 * kMiB);
  CountTaken(Peer(0), 8 * kMiB);
  Look(guard, 63 * kMiB);
  EXPECT_EQ(Open(), (std::vector<bool>{true, true, true}));
  Send(1, 2 * kMiB);
  Look(guard, 63 * kMiB);
  EXPECT_FALSE(Open()[1]);
}

}  // namespace
}  // namespace moed
