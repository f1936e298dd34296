// Which changes of the model are begun, and when.
#include "server/model_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "spdlog/spdlog.h"
#include "tests/resource_limit.h"
#include "tests/store/small_store.h"
#include "tests/system/demo_rig.h"

namespace moed {
namespace {

Config DemoConfig(const std::string& models_folder) {
  spdlog::set_level(spdlog::level::off);
  Config config;
  config.store = testing::DemoStorePath("q4");
  config.memory_budget = 64 << 20;
  config.models_folder = models_folder;
  return config;
}

struct HostOfDemo {
  explicit HostOfDemo(std::string folder = "") : models_folder(std::move(folder)) {}

  const std::string models_folder;
  std::optional<uint64_t> memory_left;
  std::function<void(const absl::Status&)> exit = [](const absl::Status& error) { ADD_FAILURE() << error; };
  std::function<void()> tell_health = [] {};
  ServerState state;
  ModelCounters counters;
  PromptWorkers workers{{.threads = 1}};
  LiveCalls live;
  ModelHost host{
      DemoConfig(models_folder),
      {state, counters, workers, live, nullptr, Clock::Real(), [this] { tell_health(); }, [](std::span<const std::string>) {},
       [this](const absl::Status& error) { exit(error); }, [this] { return memory_left; }}};
};

// Of a change that is begun.
absl::Status OutcomeOf(const absl::StatusOr<std::shared_ptr<ModelChange>>& change) {
  struct Ended final : ModelChange::Watcher {
    explicit Ended(std::shared_ptr<ModelChange> change) : change(std::move(change)) {}
    void OnChange() override {
      if (change->Now().ended && !told.HasBeenNotified()) told.Notify();
    }
    const std::shared_ptr<ModelChange> change;
    absl::Notification told;
  };
  EXPECT_TRUE(change.ok()) << change.status();
  if (!change.ok()) return change.status();
  const auto ended = std::make_shared<Ended>(*change);
  (*change)->Watch(ended);
  ended->OnChange();
  ended->told.WaitForNotification();
  return (*change)->Now().status;
}

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

// What is looked at beside a model is bounded, whatever the store says of itself; the model stays.
TEST(ModelHostTest, AStoreThatIsTooLargeToLookAtBesideAModelIsRefused) {
  const MemoryFolder folder;
  StoreDescription description = SmallDescription();
  description.tokenizer.resize((16 << 20) + 1);
  WriteSmallStore(folder / "large.moed", description);
  HostOfDemo demo(folder / "");
  ASSERT_TRUE(demo.host.Open().ok());
  ASSERT_TRUE(demo.host.Start().ok());
  const auto model = demo.state.loaded();
  const absl::Status status = OutcomeOf(demo.host.Load({.store = folder / "large.moed", .replace = true}));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("the tokenizer has 16777217 bytes, at most 16777216 are read "
                                                                  "beside a model: unload that first"));
  EXPECT_EQ(demo.state.loaded(), model);
}

// A driver may keep what was pinned for it: two budgets at once are what the kernel ends processes for.
TEST(ModelHostTest, ALostDeviceWhoseMemoryDoesNotComeBackEndsTheProcess) {
  absl::Notification exits;
  absl::Status error;
  HostOfDemo demo;
  demo.memory_left = 1 << 20;
  demo.exit = [&](const absl::Status& given) {
    error = given;
    exits.Notify();
  };
  ASSERT_TRUE(demo.host.Open().ok());
  ASSERT_TRUE(demo.host.Start().ok());
  demo.state.loaded()->device_lost(absl::InternalError("gone"));
  exits.WaitForNotification();
  EXPECT_TRUE(absl::IsResourceExhausted(error)) << error;
  EXPECT_THAT(std::string(error.message()), ::testing::HasSubstr("1.0 MiB are left: the driver may have kept"));
  EXPECT_FALSE(demo.state.ready());
}

// Its folder may lie on a disk that does not answer, and whoever asks waits on a thread that serves others.
TEST(ModelHostTest, WhichStoreMayBeLoadedIsLookedAtByTheChange) {
  const MemoryFolder folder;
  HostOfDemo demo(folder / "");
  ASSERT_TRUE(demo.host.Open().ok());
  ASSERT_TRUE(demo.host.Start().ok());
  EXPECT_TRUE(absl::IsPermissionDenied(OutcomeOf(demo.host.Load({.store = "/etc/shadow", .replace = true}))));
  EXPECT_TRUE(absl::IsNotFound(OutcomeOf(demo.host.Load({.store = "nothing.moed", .replace = true}))));
  EXPECT_TRUE(absl::IsInvalidArgument(OutcomeOf(demo.host.Load({.store = "two\nlines", .replace = true}))));
  EXPECT_TRUE(demo.state.ready());
}

TEST(ModelHostTest, AStoreThatCannotBeOpenedBesideAModelIsNotCalledTooLarge) {
  HostOfDemo demo;
  ASSERT_TRUE(demo.host.Open().ok());
  ASSERT_TRUE(demo.host.Start().ok());
  absl::Status status;
  {
    const ResourceLimit none(RLIMIT_NOFILE, 0);  // what is open stays
    status = OutcomeOf(demo.host.Load({.replace = true}));
  }
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(::testing::HasSubstr("Too many open files"), ::testing::Not(::testing::HasSubstr("unload"))));
  EXPECT_TRUE(demo.state.ready());
}

TEST(ModelHostTest, AnExceptionIsTheEndOfItsChangeAlone) {
  std::atomic<int> fails = 0;
  HostOfDemo demo;
  demo.tell_health = [&] {
    if (fails > 0 && fails-- == 1) throw std::bad_alloc();
  };
  ASSERT_TRUE(demo.host.Open().ok());
  ASSERT_TRUE(demo.host.Start().ok());
  fails = 1;  // when the model is being taken out
  const absl::Status kept = OutcomeOf(demo.host.Unload(absl::ZeroDuration()));
  EXPECT_EQ(kept, absl::InternalError("changing the model failed: std::bad_alloc"));
  EXPECT_TRUE(OutcomeOf(demo.host.Unload(absl::ZeroDuration())).ok());
  fails = 1;  // when one is being loaded
  EXPECT_TRUE(absl::IsInternal(OutcomeOf(demo.host.Load({}))));
  EXPECT_THAT(std::string(demo.state.CheckLoaded().message()), ::testing::HasSubstr("no model is loaded: changing the model"));
  EXPECT_TRUE(OutcomeOf(demo.host.Load({})).ok());
  EXPECT_TRUE(demo.state.ready());
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
