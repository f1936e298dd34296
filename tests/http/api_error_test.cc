#include "server/http/api/api_error.h"

#include <gtest/gtest.h>

#include "core/base/status.h"
#include "server/wire/error_details.h"

namespace moed::http {
namespace {

constexpr FieldName kNames[] = {{"format", "response_format"}, {"text", "prompt"}};

TEST(ErrorOf, FieldsThatWordsAloneNameHaveTheNameOfTheApi) {
  const ApiError error = ErrorOf(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "format: its automaton is large"), kNames);
  EXPECT_EQ(error.message, "response_format: its automaton is large");
  EXPECT_EQ(error.parameter, "response_format");
  const ApiError other = ErrorOf(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "formats: are many"), kNames);
  EXPECT_EQ(other.message, "formats: are many");
  EXPECT_EQ(other.parameter, "");
}

TEST(ErrorOf, APromptBeyondTheContextIsReadOffItsMark) {
  const absl::Status refusal = FieldError("text", "5 tokens are too many");
  const ApiError counted = ErrorOf(ToGrpcStatus(BeyondContext(refusal, 4, 5)), kNames);
  EXPECT_EQ(counted.code, "context_length_exceeded");
  EXPECT_EQ(counted.parameter, "prompt");
  ASSERT_TRUE(counted.beyond_context.has_value());
  EXPECT_EQ(counted.beyond_context->prompt_tokens, 5);
  EXPECT_EQ(counted.beyond_context->most_tokens(), 3);
  EXPECT_TRUE(counted.beyond_context->counted);
  const ApiError more = ErrorOf(ToGrpcStatus(BeyondContext(refusal, 4)), kNames);
  ASSERT_TRUE(more.beyond_context.has_value());
  EXPECT_EQ(more.beyond_context->prompt_tokens, 5);
  EXPECT_FALSE(more.beyond_context->counted);
  EXPECT_FALSE(ErrorOf(ToGrpcStatus(refusal), kNames).beyond_context.has_value());
}

}  // namespace
}  // namespace moed::http
