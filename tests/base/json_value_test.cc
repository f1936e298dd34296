#include "core/base/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace moed {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Nested(int arrays, const std::string& inside) { return std::string(arrays, '[') + inside + std::string(arrays, ']'); }

TEST(ForeignJsonTest, TakesSoManyArraysAndObjectsInOneAnotherAndNoMore) {
  EXPECT_TRUE(ParseForeignJson<json>("it", Nested(kMostJsonDepth, "1")).ok());
  EXPECT_TRUE(ParseForeignJson<json>("it", Nested(kMostJsonDepth - 1, R"({"a": 1})")).ok());
  for (const std::string& deep : {Nested(kMostJsonDepth + 1, ""), Nested(kMostJsonDepth, "{}"), Nested(300'000, "")}) {
    const absl::Status status = ParseForeignJson<json>("it", deep).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("it: "), HasSubstr("64 deep")));
  }
}

TEST(ForeignJsonTest, CountsWhatIsOpenAndNothingInStrings) {
  std::string many = "[";
  for (int i = 0; i < 2 * kMostJsonDepth; ++i) many += R"({"a": []},)";
  const auto beside = ParseForeignJson<json>("it", many + "1]");
  ASSERT_TRUE(beside.ok()) << beside.status();
  EXPECT_EQ(beside->size(), size_t{2 * kMostJsonDepth + 1});
  const json text = R"(\"[{)" + std::string(2 * kMostJsonDepth, '[');
  const auto read = ParseForeignJson<json>("it", json({{"a", text}}).dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)["a"], text);
  // A string that ends with an escaped backslash has ended.
  EXPECT_FALSE(ParseForeignJson<json>("it", R"(["\\",)" + Nested(kMostJsonDepth, "") + "]").ok());
}

TEST(ForeignJsonTest, BadSyntaxIsNamedWithItsPlace) {
  const absl::Status status = ParseForeignJson<json>("it", "[1,").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("it: "), HasSubstr("column 4")));
}

}  // namespace
}  // namespace moed
