#include "server/wire/error_details.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace moed {
namespace error_details_test {

using ::testing::HasSubstr;

TEST(ErrorDetailsTest, StaysUnderSixKilobytesWhateverIsWrong) {
  FieldErrors errors;
  for (int i = 0; i < 200; ++i) errors.Add(std::string(1000, 'f'), std::string(5000, '\xff'));
  const grpc::Status status = ToGrpcStatus(errors.ToStatus());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_GE(ViolatedFields(status).size(), 1u);
  EXPECT_LT(3 * status.error_message().size() + status.error_details().size() * 4 / 3, 6u * 1024 + 1024);
  EXPECT_LT(status.error_message().size() + status.error_details().size(), 6u * 1024);
  const grpc::Status long_message = ToGrpcStatus(absl::InternalError(std::string(100000, 'x')));
  EXPECT_LT(long_message.error_message().size(), 1024u);
}

TEST(ErrorDetailsTest, OnlyMessagesThatBeginWithAFieldNameOne) {
  EXPECT_THAT(ViolatedFields(ToGrpcStatus(absl::InvalidArgumentError("sampling.top_p: 2 is not in (0, 1]"))),
              ::testing::ElementsAre("sampling.top_p"));
  EXPECT_TRUE(ViolatedFields(ToGrpcStatus(absl::InvalidArgumentError("Something else: broken"))).empty());
  EXPECT_TRUE(ViolatedFields(ToGrpcStatus(absl::InternalError("a.b: c"))).empty());
  EXPECT_DOUBLE_EQ(RetrySeconds(ToGrpcStatus(WithRetryAfter(absl::UnavailableError("x"), 2.5))), 2.5);
}

}  // namespace error_details_test
}  // namespace moed
