#include "core/base/byte_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "core/base/status.h"

namespace moed {
namespace {

using testing::HasSubstr;

TEST(ByteSize, AreParsed) {
  const std::pair<const char*, uint64_t> cases[] = {{"0", 0},
                                                    {"4096", 4096},
                                                    {"12B", 12},
                                                    {"8MiB", 8 << 20},
                                                    {"8 MiB", 8 << 20},
                                                    {"1.5GiB", 3ull << 29},
                                                    {"900MB", 900'000'000},
                                                    {"2kB", 2000},
                                                    {"0.5KiB", 512},
                                                    {"1TiB", 1ull << 40},
                                                    {"18446744073709551615", UINT64_MAX}};
  for (const auto& [text, bytes] : cases) {
    const auto parsed = ParseBytes(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ByteSize, AnythingElseIsRefusedWithWhatIsAllowed) {
  for (const char* text : {"",
                           " ",
                           "MiB",
                           "-1",
                           "+1",
                           "1e6",
                           "0x10",
                           "1.",
                           ".5",
                           "1.5.2MiB",
                           "8mib",
                           "8Mi",
                           "8M",
                           "8  MiB",
                           "8MiB ",
                           "8 ",
                           "inf",
                           "nan",
                           "18446744073709551616",
                           "16777216TiB",
                           "99999999999999999999999",
                           "1,5GiB"}) {
    const absl::Status status = ParseBytes(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << '"' << text << '"';
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr(StrCat("\"", text, "\"")), HasSubstr("8MiB"), HasSubstr("KiB")));
  }
}

TEST(ByteSize, AreFormatted) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(3ull << 40), "3.0 TiB");
  EXPECT_EQ(FormatBytes(7864320), "7.5 MiB");
  EXPECT_EQ(FormatBytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(UINT64_MAX), "16.0 EiB");
}

}  // namespace
}  // namespace moed
