// What the backends say where the kernel or the file system refuses them.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <thread>

#include "core/io/read_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/io/temp_file.h"

namespace moed {
namespace {

using testing::HasSubstr;

// From here on, io_uring_setup fails with `error_number` in this thread and in those it starts.
bool RefuseIoUring(int error_number) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error_number)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(code), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

struct Refusal {
  int error_number;
  const char* reason;
};
constexpr Refusal kRefusals[] = {{EPERM, "seccomp"}, {ENOSYS, "this kernel has no io_uring"}, {ENOMEM, "locked memory"}};

TEST(RefusalTest, IoUringSaysWhyAndAutoSaysWhatItTookInstead) {
  const std::string contents = RandomContents(4 * kPageBytes, 21);
  const TempFile file(contents);
  const bool direct_works = OpenReadBackend("direct", file.path(), {}).ok();
  for (const Refusal& refusal : kRefusals) {
    std::thread([&] {
      ASSERT_TRUE(RefuseIoUring(refusal.error_number));
      const absl::Status named = OpenReadBackend("io_uring", file.path(), {}).status();
      ASSERT_FALSE(named.ok());
      if (direct_works) {
        EXPECT_THAT(MessageOf(named), testing::AllOf(HasSubstr("io_uring"), HasSubstr(refusal.reason)));
      } else {
        EXPECT_THAT(MessageOf(named), HasSubstr("O_DIRECT"));
      }

      auto chosen = OpenReadBackend("auto", file.path(), {});
      ASSERT_EQ(chosen.status(), absl::OkStatus());
      EXPECT_EQ((*chosen)->name(), direct_works ? "direct" : "buffered");
      EXPECT_THAT((*chosen)->description(), HasSubstr("io_uring: " + MessageOf(named)));
      const Buffer page = Buffer::Allocate(kPageBytes).value();
      EXPECT_EQ(ReadNow(**chosen, kPageBytes, page.span()), absl::OkStatus());
      EXPECT_EQ(AsText(page.span()), contents.substr(kPageBytes, kPageBytes));
    }).join();
  }
}

// The proc file system has never known O_DIRECT.
TEST(RefusalTest, AFileSystemWithoutDirectReadsIsNamedAndAutoReadsBuffered) {
  const std::string path = "/proc/version";
  for (const std::string_view name : {"io_uring", "direct"}) {
    const absl::Status refused = OpenReadBackend(name, path, {}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(MessageOf(refused), testing::AllOf(HasSubstr(path), HasSubstr("O_DIRECT")));
  }
  auto chosen = OpenReadBackend("auto", path, {});
  ASSERT_EQ(chosen.status(), absl::OkStatus());
  EXPECT_EQ((*chosen)->name(), "buffered");
  EXPECT_THAT((*chosen)->description(), testing::ContainsRegex("buffered pread.*io_uring: .*O_DIRECT.*direct: .*O_DIRECT"));
}

}  // namespace
}  // namespace moed
