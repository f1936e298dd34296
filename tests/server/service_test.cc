// The Inference service on a real socket: answers and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "core/expert/routing.h"
#include "tests/server/server_harness.h"

namespace moed {
namespace {

using moe::v1::GenerateRequest;
using moe::v1::GenerateResponse;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

moe::v1::Fidelity Asked(moe::v1::Fidelity::Kind kind, float max_gate_mass = 0) {
  moe::v1::Fidelity fidelity;
  fidelity.set_kind(kind);
  fidelity.set_max_gate_mass(max_gate_mass);
  return fidelity;
}

TEST(StreamTest, PromptInfoComesFirstFinishLastAndTheTextIsWhole) {
  const std::string text = "Gr\u00fc\u00dfe, \u4e16\u754c \U0001F600!";
  ServerHarness server({.script = [&](const EngineRequest&) { return ScriptOfText(text); }});
  GenerateRequest request = TextRequest("Hello");
  request.set_request_id("mine");
  request.mutable_response()->set_return_prompt_tokens(true);
  OpenStream stream(server, request);
  EXPECT_EQ(stream.QueuePosition(), 0);
  server.RunFreely();
  ASSERT_TRUE(stream.ReadAll().ok());
  EXPECT_EQ(stream.Text(), text);
  ASSERT_GE(stream.messages.size(), 1u);
  int tokens = 0;
  for (size_t i = 0; i < stream.messages.size(); ++i) {
    const GenerateResponse& message = stream.messages[i];
    EXPECT_EQ(message.request_id(), "mine");
    EXPECT_EQ(message.has_prompt_info(), i == 0);
    EXPECT_EQ(message.has_finish(), i + 1 == stream.messages.size());
    tokens += message.token_ids_size();
  }
  const auto& info = stream.messages.front().prompt_info();
  EXPECT_GT(info.prompt_tokens(), 0);
  EXPECT_EQ(info.token_ids_size(), info.prompt_tokens());
  const auto& finish = stream.messages.back().finish();
  EXPECT_EQ(finish.reason(), moe::v1::FINISH_REASON_STOP);
  EXPECT_EQ(finish.usage().completion_tokens(), tokens);
  EXPECT_EQ(finish.usage().prompt_tokens(), info.prompt_tokens());
}

TEST(UnaryTest, TheWholeAnswerInOneMessage) {
  ServerHarness server;
  server.RunFreely();
  GenerateResponse response;
  GenerateRequest request = TextRequest("Hello");
  request.mutable_sampling()->set_seed(7);
  ASSERT_TRUE(Generate(server, request, &response).ok());
  EXPECT_EQ(response.text(), "one two");
  EXPECT_EQ(response.token_ids_size(), 7);
  EXPECT_TRUE(response.has_prompt_info());
  EXPECT_EQ(response.finish().seed(), 7u);
  EXPECT_EQ(response.request_id().size(), 16u) << "made up";
}

TEST(RequestIdTest, ComesFromTheRequestThenTheMetadataThenTheServer) {
  ServerHarness server;
  server.RunFreely();
  for (const char* id : {"", "from-request"}) {
    grpc::ClientContext context;
    context.AddMetadata(kRequestIdKey, "from-metadata");
    GenerateRequest request = TextRequest("x");
    request.set_request_id(id);
    GenerateResponse response;
    ASSERT_TRUE(server.inference().Generate(&context, request, &response).ok());
    EXPECT_EQ(response.request_id(), *id == 0 ? "from-metadata" : id);
  }
  grpc::ClientContext context;
  context.AddMetadata(kRequestIdKey, "of-a-score");
  moe::v1::ScoreRequest score;
  score.set_text("x y");
  moe::v1::ScoreResponse scored;
  ASSERT_TRUE(server.inference().Score(&context, score, &scored).ok());
  EXPECT_EQ(scored.request_id(), "of-a-score");
}

TEST(RequestIdTest, OfTheMetadataNamesTheStreamForAbortAndIsAWish) {
  ServerHarness server;
  grpc::ClientContext context;
  context.AddMetadata(kRequestIdKey, "victim");
  const auto reader = server.inference().GenerateStream(&context, TextRequest("x"));
  reader->WaitForInitialMetadata();
  EXPECT_TRUE(server.engine().FindRequest("victim").has_value());

  server.RunFreely();
  for (const std::string& wish : {std::string("victim"), std::string(129, 'x')}) {
    grpc::ClientContext other;
    other.AddMetadata(kRequestIdKey, wish);
    GenerateResponse answer;
    const grpc::Status status = server.inference().Generate(&other, TextRequest("x"), &answer);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(answer.request_id().size(), 16u) << "made up";
  }
  GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.request_id(), "victim");
  while (reader->Read(&response)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
}

TEST(UnaryTest, LogprobsCarryTheTokensBytes) {
  ServerHarness server({.script = [](const EngineRequest& request) {
    Script script;
    EXPECT_TRUE(request.logprobs);
    EXPECT_EQ(request.top_logprobs, 1);
    script.deltas.push_back({"a", {TokenInfo{TokenId(65), -0.5f, {{TokenId(66), -1.5f}}}}});
    return script;
  }});
  server.RunFreely();
  GenerateRequest request = TextRequest("x");
  request.mutable_response()->set_logprobs(true);
  request.mutable_response()->set_top_logprobs(1);
  GenerateResponse response;
  ASSERT_TRUE(Generate(server, request, &response).ok());
  ASSERT_EQ(response.logprobs_size(), 1);
  EXPECT_EQ(response.logprobs(0).token(), TestTokenizer().TokenBytes(TokenId(65)));
  EXPECT_FLOAT_EQ(response.logprobs(0).logprob(), -0.5f);
  ASSERT_EQ(response.logprobs(0).top_size(), 1);
  EXPECT_EQ(response.logprobs(0).top(0).token_id(), 66);
}

TEST(UnaryTest, EveryFieldReachesTheEngine) {
  EngineRequest seen;
  ServerHarness server({.script = [&](const EngineRequest& request) {
    seen = request;
    return ScriptOfText("x");
  }});
  server.RunFreely();
  GenerateRequest request;
  for (int id : {5, 6, 7}) request.mutable_token_ids()->add_ids(id);
  request.set_session_id("s");
  auto& sampling = *request.mutable_sampling();
  sampling.set_temperature(0.5f);
  sampling.set_top_k(3);
  sampling.set_top_p(0.25f);
  sampling.set_min_p(0.125f);
  sampling.set_repetition_penalty(1.5f);
  sampling.set_frequency_penalty(-0.5f);
  sampling.set_presence_penalty(0.75f);
  sampling.set_seed(9);
  (*sampling.mutable_logit_bias())[4] = -1;
  (*sampling.mutable_logit_bias())[2] = 1;
  auto& stopping = *request.mutable_stopping();
  stopping.set_max_new_tokens(11);
  stopping.set_min_new_tokens(2);
  stopping.add_stop_strings("end");
  stopping.add_stop_token_ids(8);
  stopping.set_include_stop_string(true);
  stopping.set_ignore_eos(true);
  stopping.mutable_time_limit()->set_seconds(1);
  stopping.mutable_time_limit()->set_nanos(500000000);
  request.set_priority(moe::v1::PRIORITY_LOW);
  request.mutable_response()->set_skip_special_tokens(false);
  ASSERT_TRUE(Generate(server, request).ok());
  EXPECT_THAT(seen.prompt, ElementsAre(TokenId(5), TokenId(6), TokenId(7)));
  EXPECT_EQ(seen.session_id, "s");
  EXPECT_EQ(seen.priority, Priority::kLow);
  EXPECT_FALSE(seen.continues_session);
  EXPECT_EQ(seen.sampling.temperature, 0.5f);
  EXPECT_EQ(seen.sampling.top_k, 3);
  EXPECT_EQ(seen.sampling.top_p, 0.25f);
  EXPECT_EQ(seen.sampling.min_p, 0.125f);
  EXPECT_EQ(seen.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(seen.sampling.frequency_penalty, -0.5f);
  EXPECT_EQ(seen.sampling.presence_penalty, 0.75f);
  EXPECT_EQ(seen.sampling.seed, 9u);
  EXPECT_THAT(seen.sampling.logit_bias, ElementsAre(std::pair(TokenId(2), 1.0f), std::pair(TokenId(4), -1.0f)));
  EXPECT_EQ(seen.stopping.max_new_tokens, 11);
  EXPECT_EQ(seen.stopping.min_new_tokens, 2);
  EXPECT_THAT(seen.stopping.stop_strings, ElementsAre("end"));
  EXPECT_THAT(seen.stopping.stop_tokens, ElementsAre(TokenId(8)));
  EXPECT_TRUE(seen.stopping.include_stop_string);
  EXPECT_TRUE(seen.stopping.ignore_eos);
  EXPECT_DOUBLE_EQ(*seen.stopping.time_limit_seconds, 1.5);
  EXPECT_FALSE(seen.skip_special_tokens);
  ASSERT_TRUE(Generate(server, request).ok());
  EXPECT_TRUE(seen.continues_session) << "the second request with this session_id";
}

TEST(ScoreTest, ReturnsALogprobForEveryTokenButTheFirst) {
  ServerHarness server({.script = [](const EngineRequest& request) {
    Script script;
    EXPECT_EQ(request.kind, RequestKind::kScore);
    for (size_t i = 1; i < request.prompt.size(); ++i) script.finish.prompt_logprobs.push_back(-0.5f);
    return script;
  }});
  server.RunFreely();
  moe::v1::ScoreRequest request;
  for (int id : {1, 2, 3}) request.mutable_token_ids()->add_ids(id);
  moe::v1::ScoreResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(server.inference().Score(&context, request, &response).ok());
  EXPECT_THAT(response.token_ids(), ElementsAre(1, 2, 3));
  EXPECT_EQ(response.logprobs_size(), 2);
  EXPECT_DOUBLE_EQ(response.nll(), 1.0);
}

TEST(UnaryTest, APromptsLogprobsComeWithTheEndOfItsAnswer) {
  ServerHarness server({.script = [](const EngineRequest& request) {
    Script script = ScriptOfText(request.kind == RequestKind::kGenerate ? "x" : "");
    EXPECT_TRUE(request.prompt_logprobs);
    EXPECT_EQ(request.top_logprobs, 1);
    script.finish.prompt_logprobs = {-2, -3};
    script.finish.prompt_top = {{{TokenId(7), -0.5f}}, {{TokenId(8), -0.25f}}};
    return script;
  }});
  server.RunFreely();
  GenerateRequest request;
  for (int id : {5, 6, 7}) request.mutable_token_ids()->add_ids(id);
  request.mutable_response()->set_logprobs(true);
  request.mutable_response()->set_top_logprobs(1);
  request.mutable_response()->set_prompt_logprobs(true);
  for (const int most : {1, 0}) {
    request.mutable_stopping()->set_max_new_tokens(most);
    GenerateResponse response;
    ASSERT_TRUE(Generate(server, request, &response).ok());
    EXPECT_EQ(response.text(), most == 1 ? "x" : "");
    EXPECT_EQ(response.finish().reason() == moe::v1::FINISH_REASON_LENGTH, most == 0);
    EXPECT_EQ(response.prompt_info().token_ids_size(), 0) << "they were not asked for";
    ASSERT_EQ(response.prompt_logprobs_size(), 3);
    EXPECT_EQ(response.prompt_logprobs(0).token(), TestTokenizer().TokenBytes(TokenId(5)));
    EXPECT_EQ(response.prompt_logprobs(0).top_size(), 0);
    EXPECT_FLOAT_EQ(response.prompt_logprobs(2).logprob(), -3);
    ASSERT_EQ(response.prompt_logprobs(2).top_size(), 1);
    EXPECT_EQ(response.prompt_logprobs(2).top(0).token(), TestTokenizer().TokenBytes(TokenId(8)));
  }
}

TEST(UnaryTest, NothingIsGeneratedWhereAPromptIsScoredAlone) {
  ServerHarness server;
  server.RunFreely();
  GenerateRequest request = TextRequest("x");
  request.mutable_stopping()->set_max_new_tokens(0);
  GenerateResponse response;
  EXPECT_THAT(ViolatedFields(Generate(server, request, &response)), ElementsAre("stopping.max_new_tokens"));
  request.mutable_response()->set_prompt_logprobs(true);
  request.mutable_stopping()->set_min_new_tokens(1);
  request.mutable_format()->set_json_object(true);
  EXPECT_THAT(ViolatedFields(Generate(server, request, &response)), ElementsAre("stopping.min_new_tokens", "format"));
}

TEST(ScoreTest, OfATargetEveryTokenHasALogprob) {
  HarnessOptions options{.script = [](const EngineRequest& request) {
    Script script;
    EXPECT_EQ(request.prompt, (std::vector{TokenId(1), TokenId(2), TokenId(3)}));
    script.finish.prompt_logprobs.assign(request.target.size(), -0.5f);
    return script;
  }};
  options.engine.whole_prompt_tokens = 32;
  options.engine.encodes = true;
  ServerHarness server(std::move(options));
  server.RunFreely();
  moe::v1::ScoreRequest request;
  for (int id : {1, 2, 3}) request.mutable_token_ids()->add_ids(id);
  const auto score = [&](moe::v1::ScoreResponse& response) {
    grpc::ClientContext context;
    return server.inference().Score(&context, request, &response);
  };
  request.mutable_target_token_ids();
  moe::v1::ScoreResponse refused, scored;
  EXPECT_THAT(score(refused).error_message(), HasSubstr("target_token_ids: empty"));
  for (int id : {5, 6}) request.mutable_target_token_ids()->add_ids(id);
  ASSERT_TRUE(score(scored).ok());
  EXPECT_THAT(scored.token_ids(), ElementsAre(5, 6));
  EXPECT_EQ(scored.logprobs_size(), 2);
  EXPECT_EQ(scored.usage().prompt_tokens(), 3);
}

TEST(ScoreTest, ReturnsTheAlternativesThatWereAskedFor) {
  ServerHarness server({.script = [](const EngineRequest& request) {
    Script script;
    EXPECT_EQ(request.top_logprobs, 2);
    script.finish.prompt_logprobs = {-2};
    script.finish.prompt_top = {{{TokenId(7), -0.5f}, {TokenId(4), -1.0f}}};
    return script;
  }});
  server.RunFreely();
  moe::v1::ScoreRequest request;
  for (int id : {1, 2}) request.mutable_token_ids()->add_ids(id);
  request.set_top_logprobs(2);
  moe::v1::ScoreResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(server.inference().Score(&context, request, &response).ok());
  ASSERT_EQ(response.top_size(), 1);
  EXPECT_THAT(response.top(0).token_ids(), ElementsAre(7, 4));
  EXPECT_THAT(response.top(0).logprobs(), ElementsAre(-0.5f, -1.0f));

  for (int wrong : {-1, 21}) {
    request.set_top_logprobs(wrong);
    grpc::ClientContext refused;
    EXPECT_EQ(server.inference().Score(&refused, request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
}

TEST(FidelityTest, ReachesTheEngineAndWhatWasLostComesBack) {
  std::optional<Fidelity> seen;
  ServerHarness server({.script = [&](const EngineRequest& request) {
    seen = request.fidelity;
    Script script = ScriptOfText("x");
    script.finish.experts_lowered = 3;
    script.finish.experts_skipped = 2;
    script.finish.experts_masked = 1;
    script.finish.gate_mass_lost = .125;
    script.finish.fast_matmul_tokens = 9;
    script.finish.lossy_cached_tokens = 4;
    script.finish.prompt_logprobs = {-1};
    return script;
  }});
  server.RunFreely();
  const struct {
    std::optional<moe::v1::Fidelity> asked;
    std::optional<Fidelity> fidelity;
  } kCases[] = {{std::nullopt, std::nullopt},
                {Asked(moe::v1::Fidelity::KIND_UNSPECIFIED), std::nullopt},
                {Asked(moe::v1::Fidelity::EXACT), Fidelity::Exact()},
                {Asked(moe::v1::Fidelity::BOUNDED), Fidelity::Exact()},
                {Asked(moe::v1::Fidelity::BOUNDED, .25f), Fidelity::Bounded(.25f)},
                {Asked(moe::v1::Fidelity::BOUNDED, 1), Fidelity::Bounded(1)},
                {Asked(moe::v1::Fidelity::FAST), Fidelity::Fast()},
                {Asked(moe::v1::Fidelity::FAST_MATMUL), Fidelity::FastMatmul()}};
  for (const auto& test : kCases) {
    GenerateRequest request = TextRequest("Hello");
    moe::v1::ScoreRequest score;
    score.mutable_token_ids()->add_ids(1);
    score.mutable_token_ids()->add_ids(2);
    if (test.asked) *request.mutable_fidelity() = *score.mutable_fidelity() = *test.asked;
    GenerateResponse response;
    ASSERT_TRUE(Generate(server, request, &response).ok());
    EXPECT_EQ(seen, test.fidelity);
    seen = Fidelity::Bounded(-1);
    moe::v1::ScoreResponse scored;
    grpc::ClientContext context;
    ASSERT_TRUE(server.inference().Score(&context, score, &scored).ok());
    EXPECT_EQ(seen, test.fidelity);
    for (const moe::v1::RequestStats& stats : {response.finish().stats(), scored.stats()}) {
      EXPECT_EQ(stats.experts_lowered(), 3u);
      EXPECT_EQ(stats.experts_skipped(), 2u);
      EXPECT_EQ(stats.experts_masked(), 1u);
      EXPECT_EQ(stats.gate_mass_lost(), .125);
      EXPECT_EQ(stats.fast_matmul_tokens(), 9u);
      EXPECT_EQ(stats.lossy_cached_tokens(), 4);
    }
  }
}

TEST(TokenizeTest, ThereAndBack) {
  ServerHarness server;
  moe::v1::TokenizeRequest request;
  request.set_text("Once upon a time");
  moe::v1::TokenizeResponse tokens;
  grpc::ClientContext context;
  ASSERT_TRUE(server.inference().Tokenize(&context, request, &tokens).ok());
  EXPECT_GT(tokens.token_ids_size(), 0);
  moe::v1::DetokenizeRequest back;
  *back.mutable_token_ids() = tokens.token_ids();
  moe::v1::DetokenizeResponse text;
  grpc::ClientContext second;
  ASSERT_TRUE(server.inference().Detokenize(&second, back, &text).ok());
  EXPECT_EQ(text.text(), "Once upon a time");
  back.add_token_ids(1 << 30);
  grpc::ClientContext third;
  const grpc::Status status = server.inference().Detokenize(&third, back, &text);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(ViolatedFields(status), ElementsAre("token_ids"));
}

// Every wrong value is INVALID_ARGUMENT and its field is named.
TEST(ValidationTest, NamesTheField) {
  const struct {
    const char* field;
    std::function<void(GenerateRequest&)> spoil;
  } kCases[] = {
      {"request_id", [](auto& r) { r.set_request_id(std::string(129, 'x')); }},
      {"session_id", [](auto& r) { r.set_session_id(std::string(129, 'x')); }},
      {"prompt", [](auto& r) { r.clear_prompt(); }},
      {"text", [](auto& r) { r.set_text(std::string()); }},
      {"token_ids", [](auto& r) { r.mutable_token_ids(); }},
      {"prompt[1]", [](auto& r) { r.mutable_token_ids()->add_ids(1), r.mutable_token_ids()->add_ids(4096); }},
      {"prompt[0]", [](auto& r) { r.mutable_token_ids()->add_ids(-1); }},
      {"sampling.temperature", [](auto& r) { r.mutable_sampling()->set_temperature(-1); }},
      {"sampling.temperature", [](auto& r) { r.mutable_sampling()->set_temperature(std::nanf("")); }},
      {"sampling.top_k", [](auto& r) { r.mutable_sampling()->set_top_k(-1); }},
      {"sampling.top_p", [](auto& r) { r.mutable_sampling()->set_top_p(-1); }},
      {"sampling.top_p", [](auto& r) { r.mutable_sampling()->set_top_p(1.5f); }},
      {"sampling.min_p", [](auto& r) { r.mutable_sampling()->set_min_p(1.5f); }},
      {"sampling.repetition_penalty", [](auto& r) { r.mutable_sampling()->set_repetition_penalty(0); }},
      {"sampling.frequency_penalty", [](auto& r) { r.mutable_sampling()->set_frequency_penalty(2.5f); }},
      {"sampling.presence_penalty", [](auto& r) { r.mutable_sampling()->set_presence_penalty(-2.5f); }},
      {"sampling.logit_bias[3]", [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[3] = 101; }},
      {"sampling.logit_bias[0]", [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[99999] = 1; }},
      {"stopping.max_new_tokens", [](auto& r) { r.mutable_stopping()->set_max_new_tokens(0); }},
      {"stopping.max_new_tokens", [](auto& r) { r.mutable_stopping()->set_max_new_tokens(1000); }},
      {"stopping.min_new_tokens", [](auto& r) { r.mutable_stopping()->set_min_new_tokens(-1); }},
      {"stopping.stop_strings",
       [](auto& r) {
         for (int i = 0; i < 17; ++i) r.mutable_stopping()->add_stop_strings();
       }},
      {"stopping.stop_strings[0]", [](auto& r) { r.mutable_stopping()->add_stop_strings(); }},
      {"stopping.stop_strings[0]", [](auto& r) { r.mutable_stopping()->add_stop_strings(std::string(257, 'x')); }},
      {"stopping.stop_token_ids",
       [](auto& r) {
         for (int i = 0; i < 65; ++i) r.mutable_stopping()->add_stop_token_ids(1);
       }},
      {"stopping.stop_token_ids[0]", [](auto& r) { r.mutable_stopping()->add_stop_token_ids(4096); }},
      {"stopping.time_limit", [](auto& r) { r.mutable_stopping()->mutable_time_limit()->set_seconds(-1); }},
      {"stopping.time_limit", [](auto& r) { r.mutable_stopping()->mutable_time_limit()->set_nanos(2000000000); }},
      {"stopping.time_limit", [](auto& r) { r.mutable_stopping()->mutable_time_limit(); }},
      {"response.top_logprobs",
       [](auto& r) { r.mutable_response()->set_logprobs(true), r.mutable_response()->set_top_logprobs(21); }},
      {"response.top_logprobs", [](auto& r) { r.mutable_response()->set_top_logprobs(1); }},
      {"priority", [](auto& r) { r.set_priority(static_cast<moe::v1::Priority>(4)); }},
      {"fidelity.kind", [](auto& r) { r.mutable_fidelity()->set_kind(static_cast<moe::v1::Fidelity::Kind>(9)); }},
      {"fidelity.max_gate_mass", [](auto& r) { *r.mutable_fidelity() = Asked(moe::v1::Fidelity::BOUNDED, 1.5f); }},
      {"fidelity.max_gate_mass", [](auto& r) { *r.mutable_fidelity() = Asked(moe::v1::Fidelity::BOUNDED, 2); }},
      {"fidelity.max_gate_mass", [](auto& r) { *r.mutable_fidelity() = Asked(moe::v1::Fidelity::BOUNDED, -.1f); }},
      {"fidelity.max_gate_mass", [](auto& r) { *r.mutable_fidelity() = Asked(moe::v1::Fidelity::BOUNDED, std::nanf("")); }},
      {"fidelity.max_gate_mass", [](auto& r) { *r.mutable_fidelity() = Asked(moe::v1::Fidelity::EXACT, .1f); }},
      {"format.json_object", [](auto& r) { r.mutable_format()->set_json_object(false); }},
      {"format.json_schema", [](auto& r) { r.mutable_format()->set_json_schema("{\"not\": {}}"); }},
      {"format.json_schema", [](auto& r) { r.mutable_format()->set_json_schema(std::string(70'000, ' ')); }},
      {"format.regex", [](auto& r) { r.mutable_format()->set_regex("(?=a)"); }},
      {"stopping.ignore_eos", [](auto& r) { r.mutable_format()->set_regex("a"), r.mutable_stopping()->set_ignore_eos(true); }},
  };
  ServerHarness server;
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.field);
    GenerateRequest request = TextRequest("Hello");
    test.spoil(request);
    const grpc::Status status = Generate(server, request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_THAT(ViolatedFields(status), ElementsAre(test.field));
    EXPECT_THAT(status.error_message(), HasSubstr(test.field));
    EXPECT_LT(status.error_message().size() + status.error_details().size(), 6144u);
  }
  EXPECT_EQ(server.Metric(R"(moe_requests_total{code="INVALID_ARGUMENT",method="Generate"})"),
            static_cast<double>(std::size(kCases)));
  EXPECT_TRUE(server.engine().Idle());
}

TEST(ValidationTest, SeveralWrongFieldsAreAllNamed) {
  ServerHarness server;
  GenerateRequest request;
  request.mutable_stopping()->mutable_time_limit()->set_seconds(-1);
  EXPECT_THAT(ViolatedFields(Generate(server, request)), ElementsAre("prompt", "stopping.time_limit"));
}

TEST(TooLargeTest, PromptsBeyondContextOrBytesAndMessagesBeyondTheLimit) {
  ServerHarness server({.calls = {.request = {.text_bytes = 1000, .prompt_bytes = 1000}}});
  GenerateRequest request;
  for (int i = 0; i < 64; ++i) request.mutable_token_ids()->add_ids(1);
  grpc::Status status = Generate(server, request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("a context of 64 tokens leaves room for 63"));
  EXPECT_THAT(ViolatedFields(status), ElementsAre("token_ids"));
  status = Generate(server, TextRequest(std::string(1001, 'x')));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(ViolatedFields(status), ElementsAre("text"));
  EXPECT_EQ(server.Metric(R"(moe_requests_rejected_total{reason="too_large"})"), 2);
  EXPECT_EQ(Generate(server, TextRequest(std::string(5 << 20, 'x'))).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
      << "gRPC's own limit on a message";
  server.RunFreely();
  EXPECT_TRUE(Generate(server, TextRequest("x")).ok()) << "the server lives";
}

}  // namespace
}  // namespace moed
