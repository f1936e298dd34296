// The list of what was in memory: what is written is read, and nothing else is believed.
#include "core/expert/residency_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/expert/provider_rig.h"

namespace moed {
namespace residency_file_test {

using testing::HasSubstr;

class ResidencyFileTest : public testing::Test {
 protected:
  absl::StatusOr<std::vector<CachedKey>> Read() const { return ReadResidency(file_, ExpertStore::Get().description()); }
  absl::Status ErrorOf(const std::string& text) const {
    std::ofstream(file_.path, std::ios::binary) << text;
    return Read().status();
  }

  MemoryFolder folder_;
  const ResidencyFile file_{folder_ / "residency", 0xabc};
  const std::string header_ = "moed residency 1 of model 0000000000000abc\n";
};

TEST_F(ResidencyFileTest, WhatIsWrittenIsReadInItsOrder) {
  EXPECT_TRUE(absl::IsNotFound(Read().status()));
  const std::vector<CachedKey> records[] = {{{kThird, 7, Precision{1}}, {kFirst, 0}, {kSecond, 3}, {kThird, 7}}, {}};
  for (const auto& written : records) {
    ASSERT_TRUE(WriteResidency(file_, written).ok());
    const auto read = Read();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, written);
  }
  EXPECT_FALSE(std::filesystem::exists(file_.path + ".partial"));
}

TEST_F(ResidencyFileTest, AnotherModelsIsToldApart) {
  ASSERT_TRUE(WriteResidency({file_.path, 0xabd}, {}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Read().status()));
}

TEST_F(ResidencyFileTest, DamagedOnesAreRefusedByLine) {
  const std::string endless(100, '1');
  const std::pair<std::string, std::string> cases[] = {
      {"", "no list of experts"},
      {"moed residency 2 of model 0000000000000abc\n", "no list of experts"},
      {header_, "line 2: no last line"},
      {header_ + "0 1 0\n", "line 3: no last line"},
      {header_ + "0 1 0\n0 2 0\nrecords 1\n", "line 4: 'records 1' stands after 2"},
      {header_ + "1 1 0\nrecords 1\n", "line 2: '1 1 0' is no record"},  // layer 1 has no experts
      {header_ + "0 8 0\nrecords 1\n", "'0 8 0' is no record"},
      {header_ + "0 -1 0\nrecords 1\n", "'0 -1 0' is no record"},
      {header_ + "0 1 2\nrecords 1\n", "'0 1 2' is no record"},
      {header_ + "0 1\nrecords 1\n", "'0 1' is no record"},
      {header_ + "0 1 0 \nrecords 1\n", "is no record"},
      {header_ + "0 1 99999999999\nrecords 1\n", "is no record"},
      {header_ + "0 1 0\n0 1 0\nrecords 2\n", "line 3: '0 1 0' is there twice"},
      {header_ + endless + "\nrecords 1\n", "line 2: no last line"},
  };
  for (const auto& [text, message] : cases) {
    const absl::Status error = ErrorOf(text);
    EXPECT_TRUE(absl::IsInvalidArgument(error)) << error;
    EXPECT_THAT(std::string(error.message()), HasSubstr(message)) << text;
    EXPECT_THAT(std::string(error.message()), HasSubstr(file_.path));
  }
}

TEST_F(ResidencyFileTest, WhatCannotBeReadIsNotAbsent) {
  std::filesystem::create_symlink(file_.path, file_.path);
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("cannot open " + file_.path + ": Too many levels"));
  std::filesystem::remove(file_.path);
  std::filesystem::create_directory(file_.path);
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("cannot read " + file_.path + ": Is a directory"));
}

TEST_F(ResidencyFileTest, WhereItCannotBeWrittenTheOneBeforeStays) {
  const ResidencyFile nowhere{folder_ / "no such folder/residency", 1};
  EXPECT_THAT(std::string(WriteResidency(nowhere, {}).message()), HasSubstr(nowhere.path));
  ASSERT_TRUE(WriteResidency(file_, std::vector<CachedKey>{{kFirst, 1}}).ok());
  std::filesystem::create_directory(file_.path + ".partial");
  EXPECT_FALSE(WriteResidency(file_, {}).ok());
  EXPECT_EQ(Read()->size(), 1u);
}

}  // namespace residency_file_test
}  // namespace moed
