// What the checks of `moed doctor` say of machines that are files below a root of the test's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "core/base/status.h"
#include "server/doctor/check.h"
#include "server/doctor/report.h"
#include "tests/temporary_folder.h"

namespace moed {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class DoctorTest : public ::testing::Test {
 protected:
  void File(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_ + "/" + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  Machine Here(absl::StatusOr<ProbedFile> file) {
    return {.root = root_, .folder = "/data", .file = std::move(file), .seconds = 0, .clock = Clock::Real()};
  }
  Machine Here() { return Here(absl::NotFoundError("no file for this test")); }

  const TemporaryFolder folder_;
  const std::string root_ = folder_ / "root";
};

TEST_F(DoctorTest, EveryCheckHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (const Check& check : Checks()) EXPECT_TRUE(names.insert(check.name).second) << check.name;
}

TEST_F(DoctorTest, SwapIsSlower) {
  File("proc/meminfo", "SwapTotal: 0 kB\nSwapFree: 0 kB\n");
  EXPECT_EQ(LookAtSwap(Here()).state, CheckState::kOk);
  File("proc/meminfo", "SwapTotal: 2048 kB\nSwapFree: 1024 kB\n");
  const Finding finding = LookAtSwap(Here());
  EXPECT_EQ(finding.state, CheckState::kSlower);
  EXPECT_EQ(finding.values["used_bytes"], 1024 * 1024);
  EXPECT_THAT(finding.remedy, HasSubstr("swapoff"));
}

TEST_F(DoctorTest, HugePages) {
  const std::string file = "sys/kernel/mm/transparent_hugepage/enabled";
  EXPECT_EQ(LookAtHugePages(Here()).state, CheckState::kUnavailable);
  File(file, "always madvise [never]\n");
  EXPECT_EQ(LookAtHugePages(Here()).state, CheckState::kSlower);
  EXPECT_THAT(LookAtHugePages(Here()).remedy, HasSubstr(file));
  File(file, "always [madvise] never\n");
  EXPECT_EQ(LookAtHugePages(Here()).state, CheckState::kOk);
}

TEST_F(DoctorTest, MemoryOfAGroupThatOthersUse) {
  File("proc/meminfo", "MemAvailable: 8388608 kB\n");
  EXPECT_EQ(LookAtMemoryLimit(Here()).state, CheckState::kOk);
  File("proc/self/cgroup", "0::/a\n");
  File("sys/fs/cgroup/a/memory.max", "1073741824\n");
  File("sys/fs/cgroup/a/memory.current", "1048576\n");
  EXPECT_EQ(LookAtMemoryLimit(Here()).state, CheckState::kOk);
  File("sys/fs/cgroup/a/memory.current", "536870912\n");
  const Finding shared = LookAtMemoryLimit(Here());
  EXPECT_EQ(shared.state, CheckState::kSlower);
  EXPECT_THAT(shared.remedy, HasSubstr("at most 448.0 MiB"));
  File("sys/fs/cgroup/a/memory.current", "1063741824\n");
  const Finding full = LookAtMemoryLimit(Here());
  EXPECT_TRUE(full.prevents_serving);
  EXPECT_THAT(full.remedy, Not(IsEmpty()));
}

TEST_F(DoctorTest, LockedMemoryMattersToOldKernelsOnly) {
  File("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
  EXPECT_EQ(LookAtLockedMemory(Here()).state, CheckState::kOk);
  EXPECT_EQ(LookAtLockedMemory(Here()).values["wanted_bytes"], 0);
  File("proc/sys/kernel/osrelease", "5.10.0-21-amd64\n");
  EXPECT_GT(LookAtLockedMemory(Here()).values["wanted_bytes"], 0);
}

TEST_F(DoctorTest, AQuotaBelowTheThreadsIsSlower) {
  File("proc/self/cgroup", "0::/a\n");
  File("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  const Finding finding = LookAtProcessor(Here());
  EXPECT_EQ(finding.values["cgroup_processors"], 0.5);
  if (finding.values["threads"] == 1) return;  // as many as there is a use for
  EXPECT_EQ(finding.state, CheckState::kSlower);
  EXPECT_THAT(finding.remedy, HasSubstr("--threads 1"));
}

TEST_F(DoctorTest, AFolderIsReadThroughAFileThatIsGone) {
  std::filesystem::create_directories(root_);
  absl::StatusOr<ProbedFile> file = OpenProbedFile(root_, 0, Clock::Real());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(std::filesystem::is_empty(root_));
  const Machine machine = Here(std::move(file));
  const Finding disk = LookAtDiskBandwidth(machine);
  EXPECT_EQ(disk.values["measured"], "temporary file");
  EXPECT_GT(disk.values["bytes_per_second"], 0);
  EXPECT_EQ(disk.state, disk.values["page_cache"] == true ? CheckState::kSlower : CheckState::kOk);
  EXPECT_THAT(LookAtDirectIo(machine).found, HasSubstr("/data"));
}

TEST_F(DoctorTest, WhatCannotBeReadIsSaid) {
  File("short", "too short");
  EXPECT_THAT(std::string(OpenProbedFile(root_ + "/short", 0, Clock::Real()).status().message()), HasSubstr("shorter than"));
  EXPECT_THAT(std::string(OpenProbedFile(root_ + "/absent", 0, Clock::Real()).status().message()), HasSubstr("/absent"));
  const Finding disk = LookAtDiskBandwidth(Here());
  EXPECT_EQ(disk.state, CheckState::kUnavailable);
  EXPECT_THAT(disk.found, HasSubstr("no file for this test"));
  EXPECT_FALSE(disk.prevents_serving) << "a store may lie elsewhere";
}

TEST_F(DoctorTest, ReportsSayTheSame) {
  const Check check{.name = "one", .title = "the one", .look = nullptr};
  std::vector<CheckedRow> rows = {{&check, {.state = CheckState::kSlower, .found = "a \"b\"", .remedy = "do c"}}};
  EXPECT_THAT(RowText(rows[0]), HasSubstr("the one"));
  EXPECT_THAT(RowText(rows[0]), HasSubstr("-> do c"));
  EXPECT_THAT(VerdictText(rows), HasSubstr("can serve"));
  auto json = nlohmann::json::parse(DoctorJson(rows, "/data"));
  EXPECT_EQ(json["can_serve"], true);
  EXPECT_EQ(json["checks"][0]["state"], "slower");
  EXPECT_EQ(json["checks"][0]["found"], "a \"b\"");
  rows[0].finding.prevents_serving = true;
  EXPECT_THAT(VerdictText(rows), HasSubstr("cannot serve here: the one"));
  json = nlohmann::json::parse(DoctorJson(rows, "/data"));
  EXPECT_EQ(json["can_serve"], false);
}

}  // namespace
}  // namespace moed
