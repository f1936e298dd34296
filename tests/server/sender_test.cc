#include "server/rpc/sender.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"

namespace moed {
namespace {

class Task final : public Outgoing {
 public:
  explicit Task(std::function<void()> send) : send_(std::move(send)) {}
  void Send() override { send_(); }

 private:
  const std::function<void()> send_;
};

void Post(Sender& sender, std::function<void()> send) { sender.Post(std::make_shared<Task>(std::move(send))); }

TEST(Sender, SendsInTheOrderOfPostingOnOneOtherThread) {
  std::vector<int> sent;
  std::vector<std::thread::id> threads;
  {
    Sender sender;
    for (int i = 0; i < 100; ++i) {
      Post(sender, [&, i] {
        sent.push_back(i);
        threads.push_back(std::this_thread::get_id());
      });
    }
  }
  ASSERT_EQ(sent.size(), 100u) << "its end sends what is left";
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(sent[i], i);
    EXPECT_EQ(threads[i], threads[0]);
    EXPECT_NE(threads[i], std::this_thread::get_id());
  }
}

TEST(Sender, TakesMoreWhileItSendsAndFromItsOwnThread) {
  absl::Notification began, posted, all_sent;
  Sender sender;
  Post(sender, [&] {
    began.Notify();
    posted.WaitForNotification();
  });
  began.WaitForNotification();
  Post(sender, [&] { Post(sender, [&] { all_sent.Notify(); }); });
  posted.Notify();
  all_sent.WaitForNotification();
}

TEST(Sender, SendsWhatSeveralThreadsPostOnceEach) {
  constexpr int kThreads = 4, kEach = 500;
  std::vector<int> sent(kThreads * kEach, 0);
  {
    Sender sender;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kEach; ++i) Post(sender, [&sent, at = thread * kEach + i] { ++sent[at]; });
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (int count : sent) EXPECT_EQ(count, 1);
}

TEST(Sender, LetsGoOfWhatItSent) {
  Sender sender;
  absl::Notification gone;
  {
    std::shared_ptr<void> held(nullptr, [&](void*) { gone.Notify(); });
    Post(sender, [held = std::move(held)] {});
  }
  gone.WaitForNotification();
}

}  // namespace
}  // namespace moed
