// What processes with a device may do besides; tests/system/sandbox_test.py has what the daemon gives up.
#include "server/sandbox/sandbox.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <cerrno>
#include <latch>
#include <thread>

#include "server/sandbox/landlock.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace sandbox_test {

// As a driver does with threads of its own: through /proc.
int NameAnother() {
  std::latch named(1);
  std::thread other([&] { named.wait(); });
  const int error = pthread_setname_np(other.native_handle(), "other");
  named.count_down();
  other.join();
  return error;
}

int NameAnotherIn(bool devices) {
  spdlog::set_level(spdlog::level::off);
  const SandboxNeeds needs{.devices = devices};
  return EnterSandbox(SandboxRule::kOn, needs).ok() ? NameAnother() : EINVAL;
}

TEST(SandboxDeathTest, ThreadsAreNamedWhereADeviceIsUsed) {
  if (LandlockVersion() == 0) GTEST_SKIP() << "the kernel has no Landlock";
  EXPECT_EXIT(std::_Exit(NameAnotherIn(true)), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(std::_Exit(NameAnotherIn(false)), testing::ExitedWithCode(EACCES), "");
}

}  // namespace sandbox_test
}  // namespace moed
