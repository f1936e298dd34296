// Conversations over a real socket: what a client may demand of them, how they are told of, what logs say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "server/rpc/session_digest.h"
#include "server/wire/tokens.h"
#include "tests/server/server_harness.h"
#include "tests/temporary_folder.h"

namespace moed {
namespace {

using moe::v1::GenerateRequest;
using moe::v1::GenerateResponse;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

GenerateRequest InSession(const std::string& session) {
  GenerateRequest request = TextRequest("x");
  request.set_session_id(session);
  return request;
}

grpc::Status Delete(ServerHarness& server, const std::string& session, const std::string& metadata = "") {
  grpc::ClientContext context;
  if (!metadata.empty()) context.AddMetadata(kSessionIdKey, metadata);
  moe::v1::DeleteSessionRequest request;
  request.set_session_id(session);
  moe::v1::DeleteSessionResponse response;
  return server.inference().DeleteSession(&context, request, &response);
}

moe::v1::ListSessionsResponse List(ServerHarness& server, int most = 0) {
  grpc::ClientContext context;
  moe::v1::ListSessionsRequest request;
  request.set_most(most);
  moe::v1::ListSessionsResponse response;
  EXPECT_TRUE(server.control().ListSessions(&context, request, &response).ok());
  return response;
}

TEST(SessionTest, WhatMustBeThereAndHowLongItIs) {
  ServerHarness server;
  server.RunFreely();
  GenerateRequest request = InSession("s");
  request.set_must_exist(true);
  const grpc::Status missing = Generate(server, request);
  EXPECT_EQ(missing.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(missing.error_message(), HasSubstr("\"s\""));
  request.set_must_exist(false);
  request.set_expected_tokens(0);
  GenerateResponse response;
  ASSERT_TRUE(Generate(server, request, &response).ok());
  const int held = response.finish().session_tokens();
  EXPECT_EQ(held, response.finish().usage().prompt_tokens() + response.finish().usage().completion_tokens());
  const grpc::Status wrong = Generate(server, request);
  EXPECT_EQ(wrong.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(wrong.error_message(), HasSubstr("holds " + std::to_string(held) + " tokens, not 0"));
  request.set_expected_tokens(held);
  request.set_must_exist(true);
  ASSERT_TRUE(Generate(server, request, &response).ok());
  EXPECT_LE(response.finish().usage().cached_tokens(), response.finish().usage().prompt_tokens());
  EXPECT_GT(response.finish().usage().prompt_tokens(), held);
  GenerateRequest alone = TextRequest("x");
  alone.set_must_exist(true);
  EXPECT_THAT(ViolatedFields(Generate(server, alone)), ElementsAre("must_exist"));
}

TEST(SessionTest, TheEndOfTheContextIsToldAndSoIsTheRemedy) {
  ServerHarness server({.script = [](const EngineRequest&) {
    Script script = ScriptOfText("one");
    script.finish.reason = FinishReason::kContext;
    return script;
  }});
  server.RunFreely();
  GenerateResponse response;
  ASSERT_TRUE(Generate(server, InSession("s"), &response).ok());
  EXPECT_EQ(response.finish().reason(), moe::v1::FINISH_REASON_CONTEXT);
  EXPECT_EQ(server.Metric(R"(moe_requests_finished_total{reason="context"})"), 1);
  GenerateRequest more = InSession("s");
  for (int i = 0; i < 62; ++i) more.mutable_token_ids()->add_ids(1);
  const grpc::Status full = Generate(server, more);
  EXPECT_EQ(full.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(full.error_message(), HasSubstr("of the session are too many"));
}

TEST(SessionTest, WhatIsDeletedIsGone) {
  ServerHarness server;
  EXPECT_EQ(Delete(server, "s").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(ViolatedFields(Delete(server, "")), ElementsAre("session_id"));
  EXPECT_THAT(ViolatedFields(Delete(server, std::string(129, 's'))), ElementsAre("session_id"));
  OpenStream running(server, InSession("s"));
  EXPECT_EQ(Delete(server, "s").error_code(), grpc::StatusCode::ABORTED);
  server.RunFreely();
  ASSERT_TRUE(running.ReadAll().ok());
  EXPECT_TRUE(Delete(server, "s").ok());
  GenerateRequest request = InSession("s");
  request.set_must_exist(true);
  EXPECT_EQ(Generate(server, request).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(server.Metric(R"(moe_requests_total{code="OK",method="DeleteSession"})"), 1);
}

TEST(SessionTest, MetadataHoldWhatArrivesAsItWasSent) {
  for (const std::string& value : {std::string("s"), std::string("of one {a}~"), std::string(1024, 'x')}) {
    EXPECT_TRUE(FitsMetadata(value)) << value;
  }
  for (const std::string& value : {std::string(), std::string(" s"), std::string("s "), std::string("a\tb"), std::string("\x7f"),
                                   std::string("\xc3\xa9"), std::string(1025, 'x')}) {
    EXPECT_FALSE(FitsMetadata(value)) << value;
  }
}

TEST(SessionTest, TheMetadataMustNameTheSameSession) {
  ServerHarness server;
  server.RunFreely();
  const auto generate = [&](const std::string& session, const std::string& metadata) {
    grpc::ClientContext context;
    context.AddMetadata(kSessionIdKey, metadata);
    GenerateResponse response;
    return server.inference().Generate(&context, InSession(session), &response);
  };
  EXPECT_TRUE(generate("s", "s").ok());
  for (const char* session : {"", "t"}) {
    const grpc::Status status = generate(session, "s");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(ViolatedFields(status), ElementsAre("session_id"));
  }
  grpc::ClientContext context;
  context.AddMetadata(kSessionIdKey, "s");
  auto reader = server.inference().GenerateStream(&context, InSession("t"));
  GenerateResponse message;
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Delete(server, "s", "t").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(Delete(server, "s", "s").ok());
}

TEST(SessionTest, ControlListsThem) {
  ServerHarness server;
  EXPECT_EQ(List(server).total(), 0);
  OpenStream first(server, InSession("a"));
  auto listed = List(server);
  ASSERT_EQ(listed.sessions_size(), 1);
  EXPECT_TRUE(listed.sessions(0).busy());
  server.RunFreely();
  ASSERT_TRUE(first.ReadAll().ok());
  ASSERT_TRUE(Generate(server, InSession("b")).ok());
  listed = List(server);
  ASSERT_EQ(listed.sessions_size(), 2);
  EXPECT_EQ(listed.sessions(0).session_id(), "b");
  EXPECT_GT(listed.sessions(1).tokens(), 0);
  EXPECT_EQ(List(server, 1).sessions_size(), 1);
  EXPECT_EQ(List(server, 1).total(), 2);
  grpc::ClientContext context;
  moe::v1::ListSessionsRequest request;
  request.set_most(1001);
  moe::v1::ListSessionsResponse response;
  EXPECT_THAT(ViolatedFields(server.control().ListSessions(&context, request, &response)), ElementsAre("most"));
}

// The engine keeps tenants' sessions apart by longer names, which their clients neither pay for nor hear.
TEST(SessionTest, OfATenantTheyHaveTheNamesThatItsClientsGive) {
  const TemporaryFolder folder;
  TokenLine line{.name = "alice", .hash = HashOfToken("secret")};
  line.scopes.Add(Scope::kInfer);
  std::ofstream(folder / "tokens") << line.Text() << "\n";
  const auto tokens = *Tokens::Read(folder / "tokens");
  ServerHarness server({.tokens = tokens.get()});
  server.RunFreely();
  const auto as_alice = [](grpc::ClientContext& context) { context.AddMetadata("authorization", "Bearer secret"); };
  const auto generate = [&](const GenerateRequest& request) {
    grpc::ClientContext context;
    as_alice(context);
    GenerateResponse response;
    return server.inference().Generate(&context, request, &response);
  };
  const std::string longest(128, 's');
  EXPECT_TRUE(generate(InSession(longest)).ok());
  EXPECT_THAT(ViolatedFields(generate(InSession(longest + "s"))), ElementsAre("session_id"));
  GenerateRequest wrong = InSession(longest);
  wrong.set_expected_tokens(0);
  EXPECT_THAT(generate(wrong).error_message(), StartsWith("expected_tokens: session \"" + longest + "\" holds "));
  grpc::ClientContext context;
  as_alice(context);
  moe::v1::DeleteSessionRequest unknown;
  unknown.set_session_id("t");
  moe::v1::DeleteSessionResponse response;
  EXPECT_EQ(server.inference().DeleteSession(&context, unknown, &response).error_message(), "session_id: \"t\" is not kept here");
}

TEST(SessionTest, LogsHaveDigestsOfSessionsAlone) {
  RequestRecord record;
  record.session_id = "the secret";
  record.status = absl::NotFoundError("must_exist: session \"the secret\" is not kept here");
  const std::string text = RequestLog::Line(record);
  EXPECT_THAT(text, Not(HasSubstr("the secret")));
  const auto line = nlohmann::json::parse(text);
  EXPECT_EQ(line["session"], SessionDigest("the secret"));
  EXPECT_THAT(std::string(line["error"]), HasSubstr("session " + SessionDigest("the secret")));
  EXPECT_NE(SessionDigest("the secret"), SessionDigest("another"));
  EXPECT_EQ(SessionDigest("the secret").size(), 16u);
}

}  // namespace
}  // namespace moed
