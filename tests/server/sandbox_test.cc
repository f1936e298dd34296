// What processes with a device may do besides; tests/system/sandbox_test.py has what the daemon gives up.
#include "server/sandbox/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <string>
#include <thread>

#include "server/sandbox/landlock.h"
#include "spdlog/spdlog.h"
#include "tests/temporary_folder.h"

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

// 0, or why not. As a driver's library does with what processes share.
int MakeAndRemove(const std::string& file) {
  const int descriptor = open(file.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) return errno;
  close(descriptor);
  return unlink(file.c_str()) == 0 ? 0 : errno;
}

// Of one file, and of one in a folder that it makes.
int MakeFilesIn(const std::string& shared, const std::string& compiled, bool devices) {
  spdlog::set_level(spdlog::level::off);
  if (!EnterSandbox(SandboxRule::kOn, {.devices = devices}).ok()) return EINVAL;
  if (const int error = MakeAndRemove(shared); error != 0) return error;
  if (mkdir(compiled.c_str(), 0700) != 0) return errno;
  return MakeAndRemove(compiled + "/kernel");
}

TEST(SandboxDeathTest, WhatADriversLibraryWritesIsWrittenWhereADeviceIsUsed) {
  if (LandlockVersion() == 0) GTEST_SKIP() << "the kernel has no Landlock";
  const TemporaryFolder pipes, cache;
  setenv("CUDA_MPS_PIPE_DIRECTORY", (pipes / "").c_str(), 1);
  setenv("CUDA_CACHE_PATH", (cache / "compiled").c_str(), 1);
  const std::string shared_memory = "/dev/shm/moed_sandbox_test." + std::to_string(getpid());
  for (const std::string& shared : {pipes / "control", shared_memory}) {
    EXPECT_EXIT(std::_Exit(MakeFilesIn(shared, cache / "compiled", false)), testing::ExitedWithCode(EACCES), "");
    EXPECT_EXIT(std::_Exit(MakeFilesIn(shared, cache / "compiled", true)), testing::ExitedWithCode(0), "");
    std::filesystem::remove(cache / "compiled");
  }
  unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  unsetenv("CUDA_CACHE_PATH");
}

TEST(SandboxDeathTest, WhatADriversLibraryWritesIsNotEverything) {
  if (LandlockVersion() == 0) GTEST_SKIP() << "the kernel has no Landlock";
  for (const char* variable : {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_CACHE_PATH"}) {
    setenv(variable, "/", 1);
    constexpr auto kRefused = static_cast<int>(absl::StatusCode::kFailedPrecondition);
    EXPECT_EXIT(std::_Exit(EnterSandbox(SandboxRule::kOn, {.devices = true}).raw_code()), testing::ExitedWithCode(kRefused), "");
    unsetenv(variable);
  }
}

}  // namespace sandbox_test
}  // namespace moed
