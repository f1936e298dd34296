// Which changes of the model are begun, and when.
#include "server/model_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <string>

#include "absl/synchronization/notification.h"
#include "spdlog/spdlog.h"
#include "tests/system/demo_rig.h"

namespace moed {
namespace {

Config DemoConfig() {
  spdlog::set_level(spdlog::level::off);
  Config config;
  config.store = testing::DemoStorePath("q4");
  config.memory_budget = 64 << 20;
  return config;
}

struct HostOfDemo {
  std::function<void(const absl::Status&)> exit = [](const absl::Status& error) { ADD_FAILURE() << error; };
  ServerState state;
  ModelCounters counters;
  PromptWorkers workers{{.threads = 1}};
  LiveCalls live;
  ModelHost host{
      DemoConfig(),
      {state, counters, workers, live, nullptr, Clock::Real(), [] {}, [this](const absl::Status& error) { exit(error); }}};
};

// The addresses are there before the model is, and who finds them may ask.
TEST(ModelHostTest, NoChangeIsBegunBeforeTheStart) {
  HostOfDemo demo;
  ASSERT_TRUE(demo.host.Open().ok());
  const absl::Status load = demo.host.Load({.replace = true}).status();
  const absl::Status unload = demo.host.Unload(std::nullopt).status();
  for (const absl::Status& status : {load, unload}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("the server is starting"));
  }

  ASSERT_TRUE(demo.host.Start().ok());
  EXPECT_TRUE(demo.state.ready());
  EXPECT_THAT(std::string(demo.host.Load({}).status().message()), ::testing::HasSubstr("a model is loaded"));
  EXPECT_TRUE(demo.host.Load({.replace = true}).ok());
}

TEST(ModelHostTest, AnEngineThatFailsEndsTheProcess) {
  absl::Notification exits;
  absl::Status error;
  HostOfDemo demo;
  demo.exit = [&](const absl::Status& given) {
    error = given;
    exits.Notify();
  };
  ASSERT_TRUE(demo.host.Open().ok());
  ASSERT_TRUE(demo.host.Start().ok());
  ASSERT_TRUE(demo.state.loaded()->engine->BetweenSteps([] { throw std::bad_alloc(); }).ok());
  exits.WaitForNotification();
  EXPECT_EQ(error, absl::InternalError("the engine failed: std::bad_alloc"));
}

}  // namespace
}  // namespace moed
