#include "server/wire/connection_acceptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/temporary_folder.h"

namespace moed {
namespace {

// While it is there the process has no descriptors but those that were given back.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &few);
    for (int taken; (taken = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken_.push_back(taken);
  }
  ~NoDescriptors() {
    End();
    GiveBack(taken_.size());
  }
  void End() { setrlimit(RLIMIT_NOFILE, &before_); }
  void GiveBack(size_t count) {
    for (; count > 0; --count) {
      close(taken_.back());
      taken_.pop_back();
    }
  }

 private:
  rlimit before_;
  std::vector<int> taken_;
};

class Client {
 public:
  Client() : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Client() { close(socket_); }

  void Connect(const std::string& path) {
    sockaddr_un address{.sun_family = AF_UNIX};
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  std::string Hear() {  // "" where the connection is closed
    char said[16];
    const ssize_t bytes = read(socket_, said, sizeof(said));
    return std::string(said, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  }

 private:
  const int socket_;
};

// Of a server that has no descriptor beside those that it listens with, not even a spare one.
class ConnectionAcceptorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    none_.GiveBack(2);  // the listener, and what wakes the thread
    auto acceptor = ConnectionAcceptor::Listen({.path = path_}, 8);
    ASSERT_TRUE(acceptor.ok()) << acceptor.status();
    acceptor_ = *std::move(acceptor);
    acceptor_->Start([](int connection) {
      EXPECT_EQ(write(connection, "taken", 5), 5);
      close(connection);
    });
  }
  std::string Answer(Client& client) {
    client.Connect(path_);
    return client.Hear();
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "socket";
  Client first_, second_, third_;
  NoDescriptors none_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

TEST_F(ConnectionAcceptorTest, ASpareDescriptorThatWasLostIsThereAgainAsSoonAsThereIsOne) {
  none_.GiveBack(1);
  EXPECT_EQ(Answer(first_), "") << "the only one is the spare one, so that the connection can be closed";
  EXPECT_EQ(Answer(second_), "");
  EXPECT_EQ(acceptor_->refused(), 2u);
  none_.GiveBack(1);
  EXPECT_EQ(Answer(third_), "taken");
  EXPECT_EQ(acceptor_->refused(), 2u);
}

TEST_F(ConnectionAcceptorTest, WhatCameWhenThereWasNoneIsTakenLater) {
  first_.Connect(path_);
  none_.End();
  EXPECT_EQ(first_.Hear(), "taken");
  EXPECT_EQ(acceptor_->refused(), 0u);
}

}  // namespace
}  // namespace moed
