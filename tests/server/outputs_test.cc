#include "server/startup/outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/temporary_folder.h"

namespace moed {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class OutputsTest : public testing::Test {
 protected:
  OutputsTest() {
    std::filesystem::create_directories(folder_ + "/there");
    std::ofstream(folder_ + "/file") << "x";
    std::filesystem::current_path(folder_);
  }
  ~OutputsTest() override { std::filesystem::current_path(before_); }

  std::string Said(std::string Config::*output, const std::string& path) const {
    Config config;
    config.*output = path;
    const absl::Status status = CheckFolders(config);
    return std::string(status.message().data(), status.message().size());
  }

  const std::filesystem::path before_ = std::filesystem::current_path();
  const TemporaryFolder made_;
  const std::string folder_ = made_ / "outputs";
};

TEST_F(OutputsTest, FilesNeedTheirFolder) {
  EXPECT_TRUE(CheckFolders({}).ok());
  for (const auto& [flag, output] : {std::pair("--trace", &Config::trace), std::pair("--learned-state", &Config::learned_state),
                                     std::pair("--residency", &Config::residency)}) {
    EXPECT_EQ(Said(output, folder_ + "/there/new"), "");
    EXPECT_EQ(Said(output, folder_ + "/file"), "") << "is written over";
    EXPECT_EQ(Said(output, "in_the_working_folder"), "");
    EXPECT_THAT(Said(output, folder_ + "/no/new"), AllOf(HasSubstr(flag), HasSubstr("there is no folder " + folder_ + "/no")));
    EXPECT_THAT(Said(output, folder_ + "/file/new"), AllOf(HasSubstr(flag), HasSubstr(folder_ + "/file is no folder")));
    EXPECT_THAT(Said(output, folder_ + "/there"), AllOf(HasSubstr(flag), HasSubstr("is a folder")));
  }
}

TEST_F(OutputsTest, FoldersAreThereOrMade) {
  EXPECT_EQ(Said(&Config::kv_spill, folder_ + "/there"), "");
  EXPECT_THAT(Said(&Config::kv_spill, folder_ + "/no"), AllOf(HasSubstr("--kv-spill"), HasSubstr("there is no folder")));
  EXPECT_EQ(Said(&Config::models_folder, folder_ + "/there"), "");
  EXPECT_THAT(Said(&Config::models_folder, folder_ + "/no"),
              AllOf(HasSubstr("--models-folder"), HasSubstr("there is no folder")));
  EXPECT_EQ(Said(&Config::record_routing, folder_ + "/there/new/newer"), "");
  EXPECT_EQ(Said(&Config::record_routing, "new/newer"), "");
  EXPECT_THAT(Said(&Config::record_routing, folder_ + "/file/new"),
              AllOf(HasSubstr("--record-routing"), HasSubstr("is no folder")));
}

}  // namespace
}  // namespace moed
