#include "core/engine/request_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

namespace moed {
namespace request_check_test {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const EngineLimits kLimits{.max_context = 32, .max_new_tokens = 20, .max_running = 2, .queue_capacity = 2, .vocabulary = 100};

EngineRequest Valid() {
  EngineRequest request;
  request.name = std::string("r");
  request.prompt = {TokenId(1), TokenId(2)};
  return request;
}

struct CheckCase {
  std::string field;  // the message begins with it
  std::string value;  // and has this
  std::function<void(EngineRequest&)> change;
};

const float kNaN = std::nanf("");
const float kInfinity = std::numeric_limits<float>::infinity();

const CheckCase kWrong[] = {
    {"request_id", "0 bytes", [](auto& r) { r.name.clear(); }},
    {"request_id", "129 bytes", [](auto& r) { r.name = std::string(129, 'x'); }},
    {"session_id", "129 bytes", [](auto& r) { r.session_id = std::string(129, 'x'); }},
    {"session_id", "135 bytes", [](auto& r) { r.tenant = "alice", r.session_id = "alice/" + std::string(129, 'x'); }},
    {"session_id", "control characters", [](auto& r) { r.session_id = "a\x1b[31m"; }},
    {"session_id", "control characters", [](auto& r) { r.session_id = "two\nlines"; }},
    {"session_id", "control characters", [](auto& r) { r.session_id = "a\xc2\x9b"; }},
    {"request_id", "control characters", [](auto& r) { r.name = std::string("a\0b", 3); }},
    {"session_id", "0 bytes", [](auto& r) { r.continues_session = true; }},
    {"session_id", "to score", [](auto& r) { r.kind = RequestKind::kScore, r.session_id = std::string("s"); }},
    {"stopping.time_limit", "scoring", [](auto& r) { r.kind = RequestKind::kScore, r.stopping.time_limit_seconds = 1; }},
    {"response.prompt_logprobs", "session_id", [](auto& r) { r.prompt_logprobs = true, r.session_id = std::string("s"); }},
    {"prompt", "empty", [](auto& r) { r.prompt.clear(); }},
    {"prompt", "32 tokens", [](auto& r) { r.prompt.assign(32, TokenId(1)); }},
    {"target", "decoder", [](auto& r) { r.kind = RequestKind::kScore, r.target = {TokenId(1)}; }},
    {"prompt", "33 tokens", [](auto& r) { r.kind = RequestKind::kScore, r.prompt.assign(33, TokenId(1)); }},
    {"prompt[1]", "token 100", [](auto& r) { r.prompt[1] = TokenId(100); }},
    {"prompt[0]", "token -1", [](auto& r) { r.prompt[0] = TokenId(-1); }},
    {"sampling.temperature", "-0.5", [](auto& r) { r.sampling.temperature = -0.5f; }},
    {"sampling.temperature", "nan", [](auto& r) { r.sampling.temperature = kNaN; }},
    {"sampling.temperature", "inf", [](auto& r) { r.sampling.temperature = kInfinity; }},
    {"sampling.top_k", "-1", [](auto& r) { r.sampling.top_k = -1; }},
    {"sampling.top_p", "-0.5 is not in [0, 1]", [](auto& r) { r.sampling.top_p = -0.5f; }},
    {"sampling.top_p", "1.5", [](auto& r) { r.sampling.top_p = 1.5f; }},
    {"sampling.top_p", "nan", [](auto& r) { r.sampling.top_p = kNaN; }},
    {"sampling.min_p", "1.5 is not in [0, 1]", [](auto& r) { r.sampling.min_p = 1.5f; }},
    {"sampling.min_p", "-0.5", [](auto& r) { r.sampling.min_p = -0.5f; }},
    {"sampling.repetition_penalty", "0 is not in (0, infinity)", [](auto& r) { r.sampling.repetition_penalty = 0; }},
    {"sampling.repetition_penalty", "inf", [](auto& r) { r.sampling.repetition_penalty = kInfinity; }},
    {"sampling.frequency_penalty", "2.5 is not in [-2, 2]", [](auto& r) { r.sampling.frequency_penalty = 2.5f; }},
    {"sampling.presence_penalty", "-3", [](auto& r) { r.sampling.presence_penalty = -3; }},
    {"sampling.logit_bias", "1025 entries",
     [](auto& r) {
       r.sampling.logit_bias.assign(1025, {TokenId(1), 1.0f});
     }},
    {"sampling.logit_bias[0]", "token 100",
     [](auto& r) {
       r.sampling.logit_bias = {{TokenId(100), 1.0f}};
     }},
    {"sampling.logit_bias[7]", "101 is not in [-100, 100]",
     [](auto& r) {
       r.sampling.logit_bias = {{TokenId(7), 101.0f}};
     }},
    {"sampling.logit_bias[7]", "nan",
     [](auto& r) {
       r.sampling.logit_bias = {{TokenId(7), kNaN}};
     }},
    {"stopping.max_new_tokens", "0 is not in [1, 20]", [](auto& r) { r.stopping.max_new_tokens = 0; }},
    {"stopping.max_new_tokens", "2147483647 is not in [1, 20], the server's --max-new-tokens",
     [](auto& r) { r.stopping.max_new_tokens = 2147483647; }},
    {"stopping.min_new_tokens", "-1", [](auto& r) { r.stopping.min_new_tokens = -1; }},
    {"stopping.min_new_tokens", "6 is not in [0, 5]",
     [](auto& r) { r.stopping.max_new_tokens = 5, r.stopping.min_new_tokens = 6; }},
    {"stopping.stop_strings", "17 entries", [](auto& r) { r.stopping.stop_strings.assign(17, "x"); }},
    {"stopping.stop_strings[1]", "0 bytes",
     [](auto& r) {
       r.stopping.stop_strings = {"x", ""};
     }},
    {"stopping.stop_strings[0]", "257 bytes", [](auto& r) { r.stopping.stop_strings = {std::string(257, 'x')}; }},
    {"stopping.stop_strings[0]", "UTF-8", [](auto& r) { r.stopping.stop_strings = {"\xc3"}; }},
    {"stopping.stop_strings[0]", "UTF-8", [](auto& r) { r.stopping.stop_strings = {"a\xed\xa0\x80"}; }},
    {"stopping.stop_strings[0]", "UTF-8", [](auto& r) { r.stopping.stop_strings = {"\xc0\xaf"}; }},
    {"stopping.stop_strings[0]", "UTF-8", [](auto& r) { r.stopping.stop_strings = {"\x80"}; }},
    {"stopping.stop_strings[0]", "UTF-8", [](auto& r) { r.stopping.stop_strings = {"\xf4\x90\x80\x80"}; }},
    {"stopping.stop_token_ids", "65 entries", [](auto& r) { r.stopping.stop_tokens.assign(65, TokenId(1)); }},
    {"stopping.stop_token_ids[1]", "token 100",
     [](auto& r) {
       r.stopping.stop_tokens = {TokenId(99), TokenId(100)};
     }},
    {"stopping.time_limit", "0 is not in (0, infinity)", [](auto& r) { r.stopping.time_limit_seconds = 0; }},
    {"stopping.time_limit", "-1", [](auto& r) { r.stopping.time_limit_seconds = -1; }},
    {"response.top_logprobs", "21", [](auto& r) { r.logprobs = true, r.top_logprobs = 21; }},
    {"response.top_logprobs", "-1", [](auto& r) { r.logprobs = true, r.top_logprobs = -1; }},
    {"response.top_logprobs", "needs response.logprobs", [](auto& r) { r.top_logprobs = 3; }},
};

TEST(RequestCheckTest, EveryWrongValueIsNamed) {
  for (const CheckCase& c : kWrong) {
    EngineRequest request = Valid();
    c.change(request);
    const absl::Status status = CheckRequest(request, kLimits);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.field;
    const std::string message(status.message());
    EXPECT_THAT(message, StartsWith(c.field + ":"));
    EXPECT_THAT(message, HasSubstr(c.value));
    EXPECT_LT(message.size(), 200u);
  }
}

TEST(RequestCheckTest, FastMatmulIsRefusedWhereThereIsNone) {
  EngineRequest request = Valid();
  request.fidelity = Fidelity::FastMatmul();
  const absl::Status refused = CheckRequest(request, kLimits);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--fast-matmul on"));
  EngineLimits served = kLimits;
  served.fast_matmul = true;
  EXPECT_EQ(CheckRequest(request, served), absl::OkStatus());
}

TEST(RequestCheckTest, AlternativesOfATextToScoreAreBounded) {
  EngineLimits wide = kLimits;
  wide.max_context = 2048;
  EngineRequest request = Valid();
  request.kind = RequestKind::kScore;
  request.top_logprobs = 20;
  request.prompt.assign(kLimits.request.scored_alternatives / 20, TokenId(1));
  EXPECT_TRUE(CheckRequest(request, wide).ok()) << CheckRequest(request, wide);
  request.prompt.push_back(TokenId(1));
  EXPECT_THAT(std::string(CheckRequest(request, wide).message()), StartsWith("top_logprobs: 20 for each of 410 tokens"));
  request.kind = RequestKind::kGenerate;
  request.logprobs = true;
  EXPECT_TRUE(CheckRequest(request, wide).ok()) << "its prompt is not scored";
  request.prompt_logprobs = true;
  EXPECT_THAT(std::string(CheckRequest(request, wide).message()), StartsWith("response.top_logprobs: 20 for each of 410 tokens"));
  request.kind = RequestKind::kScore;  // no answer is asked for
  EXPECT_THAT(std::string(CheckRequest(request, wide).message()), StartsWith("response.top_logprobs: 20 for each of 410 tokens"));
}

TEST(RequestCheckTest, AlternativesOfThePromptAloneMayBeAskedFor) {
  EngineRequest request = Valid();
  request.prompt_logprobs = true;
  request.top_logprobs = 5;
  EXPECT_EQ(CheckRequest(request, kLimits), absl::OkStatus());
}

const std::function<void(EngineRequest&)> kRight[] = {
    [](auto&) {},
    [](auto& r) { r.name = r.session_id = std::string(128, 'x'); },
    [](auto& r) { r.tenant = "alice", r.session_id = "alice/" + std::string(128, 'x'); },
    [](auto& r) { r.prompt.assign(31, TokenId(99)); },
    [](auto& r) { r.kind = RequestKind::kScore, r.prompt.assign(32, TokenId(0)); },
    [](auto& r) {
      r.sampling = {0, 0, 1, 0, 1e-6f, -2, 2, 5, {{TokenId(0), -100.0f}, {TokenId(99), 100.0f}}};
    },
    [](auto& r) { r.sampling.top_k = std::numeric_limits<int>::max(); },
    [](auto& r) {
      r.sampling.logit_bias.assign(1024, {TokenId(1), 1.0f});
    },
    [](auto& r) { r.stopping.max_new_tokens = r.stopping.min_new_tokens = 20; },
    [](auto& r) { r.stopping.stop_strings.assign(16, std::string(256, 'x')); },
    [](auto& r) {
      r.stopping.stop_strings = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"};
    },
    [](auto& r) { r.stopping.stop_tokens.assign(64, TokenId(99)); },
    [](auto& r) { r.stopping.time_limit_seconds = 1e-9; },
    [](auto& r) { r.logprobs = true, r.top_logprobs = 20; },
};

TEST(RequestCheckTest, TheEdgesOfEveryRangeAreAllowed) {
  for (size_t i = 0; i < std::size(kRight); ++i) {
    EngineRequest request = Valid();
    kRight[i](request);
    EXPECT_TRUE(CheckRequest(request, kLimits).ok()) << i << ": " << CheckRequest(request, kLimits);
  }
}

// Clients send the same large number whatever the context is.
TEST(RequestCheckTest, WithoutALimitAnyNumberOfNewTokensMayBeAskedFor) {
  EngineLimits limits = kLimits;
  limits.max_new_tokens.reset();
  EngineRequest request = Valid();
  for (const int asked : {1, 31, 32, std::numeric_limits<int>::max()}) {
    request.stopping.max_new_tokens = asked;
    EXPECT_TRUE(CheckRequest(request, limits).ok()) << asked;
    EXPECT_EQ(limits.MostNewTokens(asked, 2), std::min(asked, 30));
  }
  request.stopping.min_new_tokens = 32;
  EXPECT_THAT(std::string(CheckRequest(request, limits).message()), StartsWith("stopping.min_new_tokens: 32 is not in [0, 31]"));
  request.stopping.min_new_tokens = 0;
  for (const int asked : {0, -1}) {
    request.stopping.max_new_tokens = asked;
    EXPECT_THAT(std::string(CheckRequest(request, limits).message()), StartsWith("stopping.max_new_tokens: ")) << asked;
  }
}

TEST(RequestCheckTest, ASessionsTokensTakeTheirPartOfTheContext) {
  EngineRequest request = Valid();
  EXPECT_TRUE(CheckSession(request, kLimits, 29).ok());
  const absl::Status status = CheckSession(request, kLimits, 30);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 tokens after 30 of the session"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("leaves room for 1"));
}

}  // namespace request_check_test
}  // namespace moed
