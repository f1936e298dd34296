#include "server/startup/limited_end.h"

#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

TEST(LimitedEndTest, WhatEndsIsWaitedFor) {
  bool ended = false;
  EndWithin(absl::InfiniteDuration(), "", [&] { ended = true; });
  EXPECT_TRUE(ended);
}

TEST(LimitedEndTest, WhatTakesLongIsHurried) {
  absl::Notification hurried;
  EndWithin(absl::InfiniteDuration(), "", [&] { hurried.WaitForNotification(); },
            {absl::Milliseconds(1), [&] { hurried.Notify(); }});
  EXPECT_TRUE(hurried.HasBeenNotified());
}

TEST(LimitedEndDeathTest, WhatDoesNotEndIsLeftAndNamed) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto hang = [] {
    spdlog::set_default_logger(spdlog::stderr_logger_mt("end"));
    EndWithin(absl::Milliseconds(1), "the disk does not answer", [] { absl::Notification().WaitForNotification(); });
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(1), "the disk does not answer");
}

}  // namespace
}  // namespace moed
