// An exception on the way ends its call with INTERNAL: gRPC would swallow it, the client would wait for ever and the server's
// Shutdown with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "server/rpc/generate_call.h"
#include "server/rpc/reactors.h"
#include "server/wire/received_message.h"
#include "tests/server/passing_engine.h"
#include "tests/server/server_harness.h"

namespace moed {
namespace {

using moe::v1::GenerateRequest;
using moe::v1::GenerateResponse;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kTokens = 40;

// Where a stream's transport throws. `gate` holds the reactions to messages back, so that the next message goes out from one.
struct Fault {
  bool at_metadata = false;
  int at_message = 0;  // from 1; 0 = never
  absl::Notification gate;
  absl::Notification metadata_done;
  absl::Notification first_message_begun;
  std::string thread;  // name of the one that it threw on; to be read once the stream has ended
};

class FaultyReactor final : public CallReactor<grpc::ServerWriteReactor<grpc::ByteBuffer>, GenerateCall> {
 public:
  FaultyReactor(grpc::CallbackServerContext* context, LiveCalls& live, Fault& fault)
      : CallReactor(context, live), fault_(fault) {}

  void SendInitialMetadata() override {
    if (fault_.at_metadata) Throw();
    CallReactor::SendInitialMetadata();
  }
  void SendMessage(const Encoded* message) override {
    ++messages_;
    if (messages_ == fault_.at_message) Throw();
    written_ = ToByteBuffer(*message);
    if (messages_ == 1) fault_.first_message_begun.Notify();  // before StartWrite: the reactor may be gone when that returns
    StartWrite(&written_);
  }
  void SendFinish(const Encoded* last, const grpc::Status& status) override {
    if (last == nullptr) return Finish(status);
    written_ = ToByteBuffer(*last);
    StartWriteAndFinish(&written_, grpc::WriteOptions(), status);
  }
  void OnSendInitialMetadataDone(bool ok) override {
    Fault& fault = fault_;  // the reactor may be gone when OperationDone returns
    OperationDone(ok);
    fault.metadata_done.Notify();
  }
  void OnWriteDone(bool ok) override {
    fault_.gate.WaitForNotification();
    OperationDone(ok);
  }

 private:
  [[noreturn]] void Throw() {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof(name));
    fault_.thread = name;
    throw std::runtime_error("a fault");
  }

  Fault& fault_;
  grpc::ByteBuffer written_;
  int messages_ = 0;
};

// GenerateStream alone, with a transport that throws.
class FaultyService final : public moe::v1::Inference::WithRawCallbackMethod_GenerateStream<moe::v1::Inference::Service> {
 public:
  FaultyService(const CallEnvironment& environment, Fault& fault) : environment_(environment), fault_(fault) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateStream(grpc::CallbackServerContext* context,
                                                             const grpc::ByteBuffer* request) override {
    auto* reactor = new FaultyReactor(context, environment_.live, fault_);
    reactor->Begin(
        environment_, request->Length(),
        [&](auto& transport) { return std::make_shared<GenerateCall>(environment_, Method::kGenerateStream, transport); },
        [&](GenerateCall& call) {
          GenerateRequest parsed;
          grpc::ByteBuffer bytes = *request;
          if (!ParseMessage(bytes, parsed).ok() || parsed.text() == "unstartable") throw std::runtime_error("a fault");
          call.Start({.read = [parsed](const LoadedModel&) -> absl::StatusOr<PendingRequest> {
            if (parsed.text() == "untranslatable") throw std::runtime_error("a fault");
            return TranslateGenerate(parsed);
          }});
        });
    return reactor;
  }

 private:
  const CallEnvironment& environment_;
  Fault& fault_;
};

class TransportFaultTest : public ::testing::Test {
 protected:
  // The status of a stream; the engine takes `steps` once initial metadata is sent, and before any message counts as written.
  grpc::Status Stream(const std::string& text, int steps) {
    FaultyService service(harness_.environment(), fault_);
    grpc::ResourceQuota quota;
    auto server = *RpcServer::Listen({"127.0.0.1", 0}, {&service}, quota, {});
    auto stub = moe::v1::Inference::NewStub(grpc::CreateChannel(server->address().Text(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    auto reader = stub->GenerateStream(&context, TextRequest(text));
    reader->WaitForInitialMetadata();
    if (steps > 0) fault_.metadata_done.WaitForNotification();
    for (int i = 0; i < steps; ++i) {
      harness_.engine().Step();
      // The first step starts, the second gives the first token; later ones must not go out with it.
      if (i == 1 && fault_.at_message > 1) fault_.first_message_begun.WaitForNotification();
    }
    fault_.gate.Notify();
    GenerateResponse response;
    while (reader->Read(&response)) ++received_;
    const grpc::Status status = reader->Finish();
    harness_.StepUntilIdle();
    server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return status;
  }
  void ExpectInternal(const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL) << status.error_message();
    EXPECT_NE(status.error_message(), "");
    EXPECT_EQ(harness_.live().size(), 0);
    EXPECT_TRUE(harness_.engine().Idle());
  }

  Fault fault_;
  ServerHarness harness_{{.script = [](const EngineRequest&) { return ScriptOfText(std::string(kTokens, 'x')); }}};
  int received_ = 0;
};

TEST_F(TransportFaultTest, WithoutAFaultTheDoubleWorks) {
  EXPECT_TRUE(Stream("x", kTokens + 2).ok());
  EXPECT_GT(received_, 0);
}

TEST_F(TransportFaultTest, InTheHandler) { ExpectInternal(Stream("unstartable", 0)); }

TEST_F(TransportFaultTest, WhereTheMessageIsRead) { ExpectInternal(Stream("untranslatable", 0)); }

TEST_F(TransportFaultTest, WhereInitialMetadataIsSent) {
  fault_.at_metadata = true;
  ExpectInternal(Stream("x", 0));
  EXPECT_EQ(harness_.Metric(R"(moe_requests_finished_total{reason="error"})"), 1);
}

TEST_F(TransportFaultTest, WhereTheEngineGivesTokens) {
  fault_.at_message = 1;
  ExpectInternal(Stream("x", 4));
  EXPECT_EQ(fault_.thread, "sender") << "the engine's thread does not touch the transport";
  EXPECT_EQ(harness_.Metric(R"(moe_requests_finished_total{reason="error"})"), 1);
  EXPECT_LT(harness_.engine().Stats().generated_tokens, uint64_t{kTokens}) << "the engine was told";
}

TEST_F(TransportFaultTest, InAReaction) {
  fault_.at_message = 2;
  ExpectInternal(Stream("x", 4));
  EXPECT_THAT(fault_.thread, AllOf(Not(""), Not("sender"))) << "one of gRPC's";
  EXPECT_EQ(received_, 1);
  EXPECT_EQ(harness_.Metric(R"(moe_requests_finished_total{reason="error"})"), 1);
}

// Throws where it is told to.
class FaultyEngine final : public PassingEngine {
 public:
  struct Faults {
    bool submit = false;
    bool cancel = false;
  };
  FaultyEngine(Engine& engine, Faults faults) : PassingEngine(engine), faults_(faults) {}

  absl::StatusOr<RequestId> Submit(EngineRequest request, std::shared_ptr<RequestObserver> observer) override {
    if (faults_.submit) throw std::runtime_error("a fault");
    return PassingEngine::Submit(std::move(request), std::move(observer));
  }
  bool Cancel(RequestId id, absl::Status status) override {
    if (faults_.cancel) throw std::runtime_error("a fault");
    return PassingEngine::Cancel(id, std::move(status));
  }

 private:
  const Faults faults_;
};

HarnessOptions WithFaults(FaultyEngine::Faults faults) {
  return {.wrap = [faults](Engine& engine) { return std::make_unique<FaultyEngine>(engine, faults); }};
}

TEST(EngineFaultTest, AtAdmission) {
  ServerHarness server(WithFaults({.submit = true}));
  grpc::ClientContext context;
  GenerateResponse response;
  const grpc::Status status = server.inference().Generate(&context, TextRequest("x"), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(status.error_message(), HasSubstr("a fault"));
  EXPECT_EQ(server.Metric(R"(moe_requests_total{code="INTERNAL",method="Generate"})"), 1);
}

TEST(EngineFaultTest, AtACancellationTheCallEndsAllTheSame) {
  ServerHarness server(WithFaults({.cancel = true}));
  grpc::ClientContext context;
  const auto reader = server.inference().GenerateStream(&context, TextRequest("x"));
  reader->WaitForInitialMetadata();
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  while (server.live().size() > 0) std::this_thread::yield();  // while the engine has not ended it
  EXPECT_FALSE(server.engine().Idle());
  server.StepUntilIdle();
}

}  // namespace
}  // namespace moed
