// What is read of /proc and /sys, below a root of the test's own.
#include "core/machine/system_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/machine/control_groups.h"
#include "tests/temporary_folder.h"

namespace moed {
namespace {

using ::testing::DoubleEq;
using ::testing::HasSubstr;
using ::testing::Optional;

class SystemFilesTest : public ::testing::Test {
 protected:
  void File(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_ + "/" + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }

  const TemporaryFolder folder_;
  const std::string root_ = folder_ / "root";
};

TEST_F(SystemFilesTest, NumbersAndWords) {
  File("number", "42\n");
  File("max", "max\n");
  File("words", "always [madvise] never\n");
  File("proc/meminfo", "MemTotal:       24684 kB\nSwapTotal:          8 kB\nSwapTotalOther: 9 kB\n");
  EXPECT_THAT(ReadNumber(root_ + "/number"), Optional(42u));
  EXPECT_EQ(ReadNumber(root_ + "/max"), std::nullopt);
  EXPECT_EQ(ReadNumber(root_ + "/absent"), std::nullopt);
  EXPECT_THAT(ReadChosenWord(root_ + "/words"), Optional(std::string("madvise")));
  EXPECT_EQ(ReadChosenWord(root_ + "/number"), std::nullopt);
  EXPECT_THAT(ReadMemInfo(root_, "SwapTotal"), Optional(8u * 1024));
  EXPECT_EQ(ReadMemInfo(root_, "Swap"), std::nullopt);
}

TEST_F(SystemFilesTest, AFileSystemIsThatOfTheInnermostMount) {
  File("proc/self/mountinfo",
       "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
       "30 22 8:2 / /data rw master:2 shared:3 - xfs /dev/sdb rw\n"
       "31 30 0:5 / /data/with\\040space rw - tmpfs tmpfs rw\n"
       "damaged\n");
  EXPECT_THAT(FileSystemOf(root_, "/home"), Optional(std::string("ext4")));
  EXPECT_THAT(FileSystemOf(root_, "/data/models"), Optional(std::string("xfs")));
  EXPECT_THAT(FileSystemOf(root_, "/database"), Optional(std::string("ext4"))) << "a name that only begins alike";
  EXPECT_THAT(FileSystemOf(root_, "/data/with space/x"), Optional(std::string("tmpfs")));
  EXPECT_EQ(FileSystemOf(root_ + "/absent", "/"), std::nullopt);
}

TEST_F(SystemFilesTest, MemoryOfGroups) {
  EXPECT_EQ(SmallestGroupMemory(root_), std::nullopt);
  File("proc/self/cgroup", "0::/a/b\n");
  File("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(SmallestGroupMemory(root_), std::nullopt);
  File("sys/fs/cgroup/a/memory.max", "1000000\n");
  File("sys/fs/cgroup/a/memory.current", "600000\n");
  File("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 200000\n");
  const auto group = SmallestGroupMemory(root_);
  ASSERT_TRUE(group.has_value());
  EXPECT_EQ(group->limit_bytes, 1000000u);
  EXPECT_EQ(group->used_bytes, 400000u) << "pages of files that can be dropped are free";
  EXPECT_THAT(group->path, HasSubstr("/sys/fs/cgroup/a/memory.max"));

  File("proc/self/cgroup", "5:cpu,memory:/c\n");
  File("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "500000\n");
  File("sys/fs/cgroup/memory/c/memory.usage_in_bytes", "300000\n");
  File("sys/fs/cgroup/memory/c/memory.stat", "inactive_file 1\ntotal_inactive_file 400000\n");
  EXPECT_EQ(SmallestGroupMemory(root_)->used_bytes, 0u);
}

TEST_F(SystemFilesTest, MemoryThatIsLeft) {
  EXPECT_EQ(MemoryLeft(root_), std::nullopt);
  File("proc/self/cgroup", "0::/a\n");
  File("sys/fs/cgroup/a/memory.max", "4096000\n");
  File("sys/fs/cgroup/a/memory.current", "1024000\n");
  EXPECT_THAT(MemoryLeft(root_), Optional(3072000u));
  File("proc/meminfo", "MemAvailable: 1000 kB\n");
  EXPECT_THAT(MemoryLeft(root_), Optional(1024000u)) << "others hold the rest";
  File("proc/meminfo", "MemAvailable: 9000 kB\n");
  EXPECT_THAT(MemoryLeft(root_), Optional(3072000u));
  File("sys/fs/cgroup/a/memory.current", "5000000\n");
  EXPECT_THAT(MemoryLeft(root_), Optional(0u));
}

TEST_F(SystemFilesTest, ProcessorsOfGroups) {
  File("proc/self/cgroup", "0::/a/b\n");
  File("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(SmallestGroupProcessors(root_), std::nullopt);
  File("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  ASSERT_TRUE(SmallestGroupProcessors(root_).has_value());
  EXPECT_THAT(SmallestGroupProcessors(root_)->processors, DoubleEq(1.5));

  File("proc/self/cgroup", "3:cpu,cpuacct:/c\n");
  File("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n");
  File("sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(SmallestGroupProcessors(root_), std::nullopt) << "no quota, as version 1 writes it";
  File("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "50000\n");
  ASSERT_TRUE(SmallestGroupProcessors(root_).has_value());
  EXPECT_THAT(SmallestGroupProcessors(root_)->processors, DoubleEq(0.5));
}

}  // namespace
}  // namespace moed
