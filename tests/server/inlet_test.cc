#include "server/wire/inlet.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <string>
#include <thread>

namespace moed {
namespace {

constexpr int64_t kAnySize = std::numeric_limits<int64_t>::max() - 1;
constexpr size_t kPiece = 8192;  // after which the inlet has looked

// What comes in at one end of a pair of sockets was sent at the other.
class InletTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0); }
  void TearDown() override {
    for (const int end : ends_) close(end);
  }

  void Receive() {
    std::string bytes(kPiece, 'x');
    ASSERT_EQ(send(ends_[0], bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    iovec into{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &into;
    message.msg_iovlen = 1;
    ASSERT_EQ(recvmsg(ends_[1], &message, MSG_WAITALL), static_cast<ssize_t>(bytes.size()));
  }

  int ends_[2] = {-1, -1};
};

TEST_F(InletTest, CountsWhatComesInAndNobodyWaitsWhereNobodyLooks) {
  const uint64_t before = BytesReceived();
  Receive();
  EXPECT_EQ(BytesReceived() - before, kPiece);
  EXPECT_TRUE(InletIsCalm());
  EXPECT_GT(MemoryOfProcess().resident, 0);
}

TEST_F(InletTest, WhoeverReceivesMoreThanIsAllowedWaitsForTheNextLook) {
  for (const InletAllowance& none : {InletAllowance{.grown = -1, .received = kAnyNumber}, {.grown = kAnySize, .received = 1}}) {
    InletWatch watch;
    watch.Looked(none);
    std::thread reader([this] { Receive(); });
    watch.Wait(absl::InfiniteDuration(), /*for_readers=*/true);
    watch.Looked({.grown = kAnySize, .received = kAnyNumber});
    reader.join();
  }
}

TEST_F(InletTest, NobodyWaitsWithinWhatIsAllowedNorOnceNobodyLooksAnyMore) {
  {
    InletWatch watch;
    watch.Looked({.grown = kAnySize, .received = kAnyNumber, .calm = false});
    Receive();
    EXPECT_FALSE(InletIsCalm());
    watch.Wake();
    watch.Wait(absl::InfiniteDuration(), /*for_readers=*/false);
    watch.Looked({.received = 1, .calm = false});
  }
  Receive();
  EXPECT_TRUE(InletIsCalm());
}

TEST_F(InletTest, PagesCountThatWhoReceivesUsesForTheFirstTime) {
  constexpr int64_t kBytes = 4 << 20;
  InletWatch watch;
  const auto use = [] {
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, kBytes, MADV_NOHUGEPAGE);
    std::memset(memory, 1, kBytes);
    munmap(memory, kBytes);
  };
  watch.Looked({.grown = kAnySize, .received = kAnyNumber});
  Receive();
  const int64_t before = MemoryOfProcess().touched;
  std::thread(use).join();
  Receive();
  EXPECT_LT(MemoryOfProcess().touched - before, kBytes / 2) << "another thread's";
  use();
  Receive();
  EXPECT_GE(MemoryOfProcess().touched - before, kBytes);
}

}  // namespace
}  // namespace moed
