// What messages may hold: told before anything is made of them, with field, value and limit; what calls of the tokenizer may take
// from the others; what clients leave lying.
#include <gmock/gmock.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <climits>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "google/protobuf/stubs/logging.h"
#include "server/wire/received_message.h"
#include "tests/server/server_harness.h"

namespace moed {
namespace {

using moe::v1::DetokenizeRequest;
using moe::v1::GenerateRequest;
using moe::v1::GenerateResponse;
using moe::v1::TokenizeRequest;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `count` times field `number` of type bytes, empty.
std::string EmptyFields(char number, size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += {static_cast<char>(number << 3 | 2), '\0'};
  return bytes;
}
std::string Varint(size_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}
std::string Nested(char number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + Varint(bytes.size()) + bytes;
}

constexpr RequestLimits kSmall{.text_bytes = 1000, .prompt_bytes = 500, .prompt_tokens = 40, .unknown_bytes = 100};

struct Excess {
  std::string field;
  std::string value;
  std::string limit;
  std::string request;  // of Generate
};

// Counts come from the bytes themselves: a message of some megabytes would be a hundred times as large in memory.
const Excess kExcesses[] = {
    {"stopping.stop_strings", "2000000 entries", "at most 16", Nested(6, EmptyFields(3, 2000000))},
    {"stopping.stop_strings", "17 entries", "at most 16", Nested(6, EmptyFields(3, 9)) + Nested(6, EmptyFields(3, 8))},
    {"stopping.stop_strings[1]", "257 bytes", "at most 256", Nested(6, Nested(3, "x") + Nested(3, std::string(257, 'x')))},
    {"stopping.stop_token_ids", "4000000 entries", "at most 64", Nested(6, Nested(4, std::string(4000000, '\1')))},
    {"stopping.stop_token_ids", "65 entries", "at most 64",
     Nested(6,
            [] {
              std::string one_by_one;
              for (int i = 0; i < 65; ++i) one_by_one += std::string("\x20\x01");
              return one_by_one;
            }())},
    {"sampling.logit_bias", "1000000 entries", "at most 1024", Nested(5, EmptyFields(9, 1000000))},
    {"token_ids", "3000000 entries", "at most 40", Nested(3, Nested(1, std::string(3000000, '\1')))},
    {"text", "501 bytes", "at most 500", Nested(2, std::string(501, 'x'))},
    {"text", "4300000 bytes", "at most 500", Nested(2, std::string(4300000, 'x'))},
    {"request_id", "129 bytes", "at most 128", Nested(1, std::string(129, 'x'))},
    {"session_id", "1000 bytes", "at most 128", Nested(8, std::string(1000, 'x'))},
    {"request", "3900004 bytes in fields that this version does not know", "at most 100",
     std::string("\xfa\x0f") + Varint(3899998) + std::string(3899998, 'x')},
    {"request", "bytes in fields that this version does not know", "at most 100",
     Nested(5, Nested(9, Nested(15, std::string(200, 'x'))))},
};

TEST(RequestLimitsTest, WhatIsTooMuchIsNamedWithItsValueAndLimit) {
  ServerHarness server({.calls = {.request = kSmall}});
  for (const Excess& excess : kExcesses) {
    SCOPED_TRACE(excess.field + " " + excess.value);
    const grpc::Status status = CallRaw(server.Channel(), "/moe.v1.Inference/Generate", excess.request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), AllOf(HasSubstr(excess.value), HasSubstr(excess.limit)));
    EXPECT_THAT(ViolatedFields(status), ElementsAre(excess.field));
  }
  EXPECT_EQ(server.Metric(R"(moe_requests_rejected_total{reason="too_large"})"), static_cast<double>(std::size(kExcesses)));
  EXPECT_TRUE(server.engine().Idle());
}

TEST(RequestLimitsTest, SeveralAreNamedTogether) {
  ServerHarness server({.calls = {.request = kSmall}});
  GenerateRequest request = TextRequest(std::string(501, 'x'));
  for (int i = 0; i < 17; ++i) request.mutable_stopping()->add_stop_strings("x");
  for (int i = 0; i < 65; ++i) request.mutable_stopping()->add_stop_token_ids(1);
  EXPECT_THAT(ViolatedFields(Generate(server, request)), ElementsAre("text", "stopping.stop_strings", "stopping.stop_token_ids"));
}

TEST(RequestLimitsTest, WhatNoContextHoldsIsMarked) {
  ServerHarness server({.calls = {.request = kSmall}});
  EXPECT_EQ(BeyondContextOf(Generate(server, TextRequest(std::string(501, 'x')))), (PromptBeyondContext{40, -1}));
  GenerateRequest tokens;
  for (int i = 0; i < 41; ++i) tokens.mutable_token_ids()->add_ids(1);
  EXPECT_EQ(BeyondContextOf(Generate(server, tokens)), (PromptBeyondContext{40, -1}));
  GenerateRequest other = TextRequest("x");
  for (int i = 0; i < 17; ++i) other.mutable_stopping()->add_stop_strings("x");
  EXPECT_EQ(BeyondContextOf(Generate(server, other)), std::nullopt);
  ServerHarness larger;  // whose engine has a context of 64
  while (tokens.token_ids().ids_size() < 64) tokens.mutable_token_ids()->add_ids(1);
  EXPECT_EQ(BeyondContextOf(Generate(larger, tokens)), (PromptBeyondContext{64, 64}));
}

TEST(RequestLimitsTest, WhatIsAllowedPasses) {
  ServerHarness server({.calls = {.request = kSmall}});
  server.RunFreely();
  GenerateRequest request = TextRequest("x");
  for (int i = 0; i < 16; ++i) request.mutable_stopping()->add_stop_strings(std::string(256, 'x'));
  for (int i = 0; i < 64; ++i) request.mutable_stopping()->add_stop_token_ids(1);
  for (int i = 0; i < 1024; ++i) (*request.mutable_sampling()->mutable_logit_bias())[i] = 1;
  const grpc::Status status = Generate(server, request);
  EXPECT_TRUE(status.ok()) << status.error_message();
  std::string response;
  const std::string newer = TextRequest("x").SerializeAsString() + std::string("\xfa\x0f\x03new");
  EXPECT_TRUE(CallRaw(server.Channel(), "/moe.v1.Inference/Generate", newer, &response).ok()) << "of a newer client";
}

TEST(RequestLimitsTest, BytesThatAreNoMessageAreToldSo) {
  const google::protobuf::LogSilencer silencer;  // says which field is no UTF-8
  ServerHarness server;
  const std::string kBytes[] = {
      "\xff", Nested(6, "\x1a\x05x"), "\x12\x02\xc3\x28", "\x13\x14", Nested(2, "x") + "\x12", "\x0a\xff\xff\xff\xff\x0f",
  };
  for (const std::string& bytes : kBytes) {
    SCOPED_TRACE(testing::PrintToString(bytes));
    const grpc::Status status = CallRaw(server.Channel(), "/moe.v1.Inference/Generate", bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_THAT(ViolatedFields(status), ElementsAre("request"));
  }
  EXPECT_EQ(server.Metric(R"(moe_requests_rejected_total{reason="too_large"})"), 0);
}

TEST(RequestLimitsTest, ALongPromptIsNotTokenisedToItsEnd) {
  ServerHarness server;  // a context of 64
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "word ";
  const grpc::Status status = Generate(server, TextRequest(text));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(ViolatedFields(status), ElementsAre("text"));
  EXPECT_THAT(status.error_message(), HasSubstr("a context of 64 tokens leaves room for 63"));
  EXPECT_EQ(server.Metric(R"(moe_requests_rejected_total{reason="too_large"})"), 1);
}

TEST(RequestLimitsTest, OfTokenizeAndDetokenize) {
  ServerHarness server({.calls = {.request = kSmall}});
  const auto tokenize = [&](const std::string& text) {
    TokenizeRequest request;
    request.set_text(text);
    grpc::ClientContext context;
    moe::v1::TokenizeResponse response;
    return server.inference().Tokenize(&context, request, &response);
  };
  EXPECT_TRUE(tokenize(std::string(1000, 'x')).ok());
  const grpc::Status too_long = tokenize(std::string(1001, 'x'));
  EXPECT_EQ(too_long.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(ViolatedFields(too_long), ElementsAre("text"));
  EXPECT_THAT(too_long.error_message(), AllOf(HasSubstr("1001 bytes"), HasSubstr("--max-text-bytes")));

  TokenId longest(0);
  for (TokenId token(0); token.value() < TestTokenizer().vocabulary_size(); token = TokenId(token.value() + 1)) {
    if (TestTokenizer().TokenBytes(token).size() > TestTokenizer().TokenBytes(longest).size()) longest = token;
  }
  const auto detokenize = [&](int count) {
    DetokenizeRequest request;
    for (int i = 0; i < count; ++i) request.add_token_ids(longest.value());
    request.set_skip_special_tokens(false);
    grpc::ClientContext context;
    moe::v1::DetokenizeResponse response;
    return server.inference().Detokenize(&context, request, &response);
  };
  EXPECT_TRUE(detokenize(10).ok());
  EXPECT_THAT(detokenize(41).error_message(), AllOf(HasSubstr("41 entries"), HasSubstr("at most 40")));

  ServerHarness terse({.calls = {.request = {.text_bytes = 20}}});
  DetokenizeRequest request;
  for (int i = 0; i < 21; ++i) request.add_token_ids(longest.value());
  request.set_skip_special_tokens(false);
  grpc::ClientContext context;
  moe::v1::DetokenizeResponse response;
  EXPECT_THAT(terse.inference().Detokenize(&context, request, &response).error_message(), HasSubstr("more than 20 bytes"));
}

// An answer in one message is held until its end.
TEST(AnswerLimitsTest, AnAnswerInOneMessageIsBounded) {
  const HarnessOptions options{
      .engine = {.max_context = 1024, .max_new_tokens = 1000, .max_running = 2, .queue_capacity = 2, .vocabulary = 4096},
      .calls = {.max_unsent_bytes = 1 << 20, .max_answer_bytes = 64 << 10},
      .script = [](const EngineRequest&) {
        Script script;
        for (int i = 0; i < 900; ++i) script.deltas.push_back({std::string(1000, 'x'), {TokenInfo{TokenId(1)}}});
        return script;
      }};
  ServerHarness server(options);
  server.RunFreely();
  const grpc::Status status = Generate(server, TextRequest("x"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("65536 bytes"), HasSubstr("have it streamed")));
  EXPECT_LT(server.engine().Stats().generated_tokens, 900u);
}

TEST(AnswerLimitsTest, AlternativesThatCannotFitOneMessageAreRefusedBeforehand) {
  ServerHarness server({.calls = {.max_answer_bytes = 8 << 10}});
  server.RunFreely();
  GenerateRequest request = TextRequest("x");
  request.mutable_response()->set_logprobs(true);
  request.mutable_response()->set_top_logprobs(20);
  request.mutable_stopping()->set_max_new_tokens(60);
  const grpc::Status status = Generate(server, request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(ViolatedFields(status), ElementsAre("response.top_logprobs"));
  EXPECT_THAT(status.error_message(), HasSubstr("have it streamed"));
  request.mutable_stopping()->set_max_new_tokens(10);
  EXPECT_TRUE(Generate(server, request).ok());
}

TEST(AnswerLimitsTest, OfManyTokensThoseThatTheContextLeavesAreCounted) {
  HarnessOptions options{.calls = {.max_answer_bytes = 8 << 10}};
  options.engine.max_new_tokens.reset();
  ServerHarness server(options);
  server.RunFreely();
  GenerateRequest request;
  for (int i = 0; i < 50; ++i) request.mutable_token_ids()->add_ids(5);
  request.mutable_response()->set_logprobs(true);
  request.mutable_response()->set_top_logprobs(20);
  request.mutable_stopping()->set_max_new_tokens(INT_MAX);
  EXPECT_TRUE(Generate(server, request).ok());
  request.mutable_token_ids()->mutable_ids()->Truncate(10);
  EXPECT_THAT(Generate(server, request).error_message(), HasSubstr("20 alternatives for each of 54 tokens"));
}

// What they take is the client's choice: it sends the tokens, and each comes back with its text.
TEST(AnswerLimitsTest, LogprobsOfAPromptThatCannotFitOneMessageAreRefusedBeforehand) {
  ServerHarness server({.calls = {.max_answer_bytes = 512}});
  server.RunFreely();
  GenerateRequest request;
  request.mutable_response()->set_prompt_logprobs(true);
  for (int i = 0; i < 40; ++i) request.mutable_token_ids()->add_ids(5);
  const grpc::Status status = Generate(server, request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(ViolatedFields(status), ElementsAre("response.prompt_logprobs"));
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("40 tokens"), HasSubstr("256 bytes")));
  request.mutable_response()->set_logprobs(true);
  request.mutable_response()->set_top_logprobs(1);
  EXPECT_THAT(ViolatedFields(Generate(server, request)), ElementsAre("response.top_logprobs"));
  request.mutable_token_ids()->mutable_ids()->Truncate(10);
  EXPECT_TRUE(Generate(server, request).ok());
}

// The one worker waits at a gate.
class BusyWorkerTest : public ::testing::Test {
 protected:
  BusyWorkerTest() {
    EXPECT_TRUE(server_.environment().workers.Submit(WorkKind::kTokenizer, 0, [this] {
      busy_.Notify();
      gate_.WaitForNotification();
    }));
    busy_.WaitForNotification();
  }
  ~BusyWorkerTest() override {
    if (!gate_.HasBeenNotified()) gate_.Notify();
    JoinThreads();
  }
  void JoinThreads() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  void WaitForLive(int count) {
    while (server_.live().size() != count) std::this_thread::yield();
  }

  absl::Notification gate_, busy_;
  std::vector<std::thread> threads_;
  ServerHarness server_;
};

TEST_F(BusyWorkerTest, TextsToBeTokenisedTurnNoGenerationAway) {
  ASSERT_TRUE(server_.environment().workers.Submit(WorkKind::kTokenizer, 900 << 10, [] {}));
  grpc::ClientContext context;
  TokenizeRequest large;
  large.set_text(std::string(900 << 10, ' '));
  moe::v1::TokenizeResponse ignored;
  EXPECT_EQ(server_.inference().Tokenize(&context, large, &ignored).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
      << "of its own kind it is too much";
  WaitForLive(0);
  grpc::Status generated;
  threads_.emplace_back([&] { generated = Generate(server_, TextRequest("x")); });
  WaitForLive(1);
  gate_.Notify();
  while (server_.engine().Idle()) std::this_thread::yield();
  server_.RunFreely();
  JoinThreads();
  EXPECT_TRUE(generated.ok()) << generated.error_message();
}

TEST_F(BusyWorkerTest, CallsOfTheTokenizerAreCancelledAndAwaitedLikeOthers) {
  grpc::ClientContext context;
  threads_.emplace_back([&] {
    TokenizeRequest request;
    request.set_text("x");
    moe::v1::TokenizeResponse response;
    server_.inference().Tokenize(&context, request, &response);
  });
  WaitForLive(1);
  EXPECT_FALSE(server_.live().WaitUntilNone(absl::ZeroDuration())) << "a drain waits for it";
  context.TryCancel();
  WaitForLive(0);
  gate_.Notify();
  while (server_.Metric(R"(moe_requests_total{code="CANCELLED",method="Tokenize"})") != 1) std::this_thread::yield();
  JoinThreads();  // which have the context
}

// Answers that clients do not take: only so many bytes of them are kept, the oldest go.
TEST(UntakenAnswersTest, TheOldestAreGivenUp) {
  ServerHarness server(
      {.engine = {.max_context = 64, .max_new_tokens = 63, .max_running = 2, .queue_capacity = 2, .vocabulary = 4096},
       .calls = {.max_unsent_bytes = 8 << 20},
       .script =
           [](const EngineRequest&) {
             Script script;
             script.deltas.push_back({std::string(1 << 20, 'x'), {TokenInfo{TokenId(1)}}});
             return script;
           },
       .untaken_bytes = 7 << 20});
  std::vector<std::unique_ptr<OpenStream>> streams;
  for (int i = 0; i < 5; ++i) {
    streams.push_back(std::make_unique<OpenStream>(server, TextRequest("x")));
    while (!server.engine().Idle()) server.engine().Step();
  }
  while (server.live().size() > 3) std::this_thread::yield();
  EXPECT_FALSE(streams.front()->ReadAll().ok());
  EXPECT_TRUE(streams.back()->ReadAll().ok());
}

TEST(CompressionTest, CompressedRequestsAreRefused) {
  gpr_set_log_function([](gpr_log_func_args*) {});  // gRPC says so itself
  ServerHarness server;
  server.RunFreely();
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    GenerateResponse response;
    const grpc::Status status = server.inference().Generate(&context, TextRequest(std::string(100000, 'x')), &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  }
  EXPECT_TRUE(Generate(server, TextRequest("x")).ok());
  gpr_set_log_function(nullptr);
}

}  // namespace
}  // namespace moed
