#include "core/base/bounded_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/status/status.h"

namespace moed {
namespace bounded_file_test {

using testing::AllOf;
using testing::HasSubstr;

std::string Message(const absl::StatusOr<std::string>& text) {
  EXPECT_TRUE(absl::IsInvalidArgument(text.status()));
  return std::string(text.status().message());
}

TEST(BoundedFile, AFileIsReadUpToItsBound) {
  std::string path = (std::filesystem::temp_directory_path() / "moed-bounded-XXXXXX").string();
  const int file = mkstemp(path.data());
  ASSERT_GE(file, 0);
  close(file);
  EXPECT_EQ(*ReadBoundedFile(path, 0), "");
  for (const size_t bytes : {size_t{1}, size_t{65536}, size_t{200000}}) {
    const std::string text(bytes, 'x');
    std::ofstream(path, std::ios::binary) << text;
    EXPECT_EQ(*ReadBoundedFile(path, bytes), text);
    EXPECT_THAT(Message(ReadBoundedFile(path, bytes - 1)), AllOf(HasSubstr(path), HasSubstr("longer than")));
  }
  std::filesystem::remove(path);
  EXPECT_THAT(Message(ReadBoundedFile(path, 1)), AllOf(HasSubstr(path), HasSubstr("No such file")));
}

TEST(BoundedFile, WhatIsNoFileIsRefused) {
  EXPECT_THAT(Message(ReadBoundedFile("/", 1000)), HasSubstr("Is a directory"));
  EXPECT_THAT(Message(ReadBoundedFile("/dev/zero", 1000)), HasSubstr("longer than 1000 B"));
}

}  // namespace bounded_file_test
}  // namespace moed
