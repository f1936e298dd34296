// A typing error in an address is told before anything is tried.
#include <gmock/gmock.h>

#include <string>
#include <utility>

#include "client/client.h"
#include "core/base/status.h"

namespace moed {
namespace address_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status ErrorOf(const std::string& address) { return Client::Connect(address, {.connect_timeout_seconds = 0.05}).status(); }

TEST(ClientAddress, WhatIsNoneIsRefused) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "or unix:PATH"},
      {"localhost", "or unix:PATH"},
      {"localhost:", "to 65535"},
      {":50051", "every address of this machine"},
      {"localhost:0", "a server's port is from 1 to 65535"},
      {"[::1]:0", "a server's port is from 1 to 65535"},
      {"localhost:65536", "to 65535"},
      {"localhost:99999999999", "to 65535"},
      {"localhost:-1", "to 65535"},
      {"localhost:http", "to 65535"},
      {"::1:50051", "goes in brackets"},
      {"unix:", "from 1 to 107 bytes"},
      {"unix:/" + std::string(107, 'x'), "from 1 to 107 bytes"},
  };
  for (const auto& [address, expected] : cases) {
    const absl::Status error = ErrorOf(address);
    EXPECT_TRUE(absl::IsInvalidArgument(error)) << error;
    EXPECT_THAT(std::string(error.message()),
                AllOf(HasSubstr(StrCat("bad server address: \"", address, "\"")), HasSubstr(expected)));
  }
}

TEST(ClientAddress, WhereNobodyAnswersThatIsSaid) {
  for (const std::string address : {"127.0.0.1:1", "[::1]:1", "unix:/no/such/socket"}) {
    const absl::Status error = ErrorOf(address);
    EXPECT_TRUE(absl::IsUnavailable(error)) << error;
    EXPECT_THAT(std::string(error.message()), HasSubstr(address));
  }
}

}  // namespace address_test
}  // namespace moed
