// The Open Inference Protocol over real sockets, in front of a real server around a scripted engine.
#include "server/http/inference/inference_server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "inference/v2.grpc.pb.h"
#include "server/http/inference/tensors.h"
#include "spdlog/spdlog.h"
#include "tests/server/server_harness.h"

namespace moed::http {
namespace {

using inference::GRPCInferenceService;
using inference::ModelInferRequest;
using inference::ModelInferResponse;
using inference::ModelStreamInferResponse;

constexpr char kText[] = "one two three four";

ModelInferRequest InferRequest(const std::string& id) {
  ModelInferRequest request;
  request.set_model_name("model");
  request.set_id(id);
  auto& input = *request.add_inputs();
  input.set_name("text_input");
  input.set_datatype("BYTES");
  input.add_shape(1);
  request.add_raw_input_contents(BytesOfText("x"));
  (*request.mutable_parameters())["max_tokens"].set_int64_param(30);
  return request;
}

std::string TextOf(const ModelInferResponse& response) {
  const auto element = ElementOfBytes("BYTES", response.raw_output_contents(0));
  return element.ok() ? element->get<std::string>() : "";
}

bool IsFinal(const ModelInferResponse& response) { return response.parameters().at("triton_final_response").bool_param(); }

class InferenceServerTest : public testing::Test {
 protected:
  InferenceServerTest()
      : harness_({.engine = {.max_context = 64, .max_new_tokens = 63, .max_running = 8, .queue_capacity = 64, .vocabulary = 4096},
                  .script = [](const EngineRequest&) { return ScriptOfText(kText); }}) {
    harness_.RunFreely();
    const std::string address = harness_.server().address().Text();
    daemon_ = std::make_unique<Daemon>(DaemonOptions{address, address});
    models_ = std::make_unique<ModelNames>(*daemon_, std::vector<std::string>{"model"});
    const InferenceServerOptions options = {
        .listen = {"127.0.0.1", 0}, .message_bytes = 1 << 16, .limits = {.calls = 64, .bytes = 1 << 20, .write_seconds = 30}};
    auto listening = InferenceServer::Listen(options, *daemon_, *models_, log_, nullptr);
    EXPECT_TRUE(listening.ok()) << listening.status();
    server_ = *std::move(listening);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    stub_ = GRPCInferenceService::NewStub(channel_);
    while (!daemon_->model().ok()) std::this_thread::yield();
  }
  ~InferenceServerTest() override {
    server_->Drain();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(60));
    server_.reset();
    daemon_->End();
  }

  const bool quiet_ = (spdlog::set_level(spdlog::level::off), true);  // before log_ is made
  ServerHarness harness_;
  AccessLog log_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<ModelNames> models_;
  std::unique_ptr<InferenceServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<GRPCInferenceService::Stub> stub_;
};

TEST_F(InferenceServerTest, WholeAnswers) {
  grpc::ClientContext context;
  ModelInferResponse response;
  const grpc::Status status = stub_->ModelInfer(&context, InferRequest("mine"), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(TextOf(response), kText);
  EXPECT_EQ(response.id(), "mine");
  EXPECT_TRUE(IsFinal(response));
}

TEST_F(InferenceServerTest, RequestsOfAStreamSideBySide) {
  grpc::ClientContext context;
  const auto stream = stub_->ModelStreamInfer(&context);
  constexpr int kRequests = 40;
  for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(stream->Write(InferRequest(std::to_string(i))));
  ASSERT_TRUE(stream->WritesDone());
  std::vector<std::string> texts(kRequests);
  int ended = 0;
  for (ModelStreamInferResponse message; stream->Read(&message);) {
    ASSERT_EQ(message.error_message(), "");
    texts[std::stoi(message.infer_response().id())] += TextOf(message.infer_response());
    ended += IsFinal(message.infer_response());
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(ended, kRequests);
  EXPECT_THAT(texts, testing::Each(kText));
}

TEST_F(InferenceServerTest, ADrainEndsStreamsWhenTheirRequestsHave) {
  grpc::ClientContext context;
  const auto stream = stub_->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(InferRequest("last")));
  ModelStreamInferResponse message;
  ASSERT_TRUE(stream->Read(&message));
  server_->Drain();
  std::string text = TextOf(message.infer_response());
  while (stream->Read(&message)) text += TextOf(message.infer_response());
  EXPECT_EQ(text, kText);
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// gRPC aborts the process where a call breaks its rules, so that this test need only come to its end.
TEST_F(InferenceServerTest, ClientsDoWhateverTheyLike) {
  const auto misbehave = [this](uint32_t seed) {
    std::mt19937 random(seed);
    for (int call = 0; call < 40; ++call) {
      grpc::ClientContext context;
      if (random() % 4 == 0) context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(random() % 30));
      const auto stream = stub_->ModelStreamInfer(&context);
      const uint32_t requests = random() % 5;
      for (uint32_t i = 0; i < requests; ++i) {
        ModelInferRequest request = InferRequest(std::to_string(i));
        if (random() % 3 == 0) request.clear_raw_input_contents();
        stream->Write(request);
      }
      ModelStreamInferResponse message;
      // Each request has one response at least.
      for (uint32_t i = 0, reads = random() % (requests + 1); i < reads && stream->Read(&message); ++i) {
      }
      const uint32_t end = random() % 3;
      if (end == 0) {
        context.TryCancel();
      } else {
        stream->WritesDone();
      }
      while (stream->Read(&message)) {
      }
      stream->Finish();
    }
  };
  std::vector<std::thread> clients;
  for (uint32_t seed = 1; seed <= 4; ++seed) clients.emplace_back(misbehave, seed);
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(harness_.live().WaitUntilNone(absl::Seconds(60)));
}

TEST(TensorsTest, ElementsOfEveryDatatype) {
  const auto read = [](std::string_view datatype, auto value) {
    return ElementOfBytes(datatype, {reinterpret_cast<const char*>(&value), sizeof(value)}).value_or(nullptr);
  };
  EXPECT_EQ(read("BOOL", uint8_t{1}), true);
  EXPECT_EQ(read("INT8", int8_t{-128}), -128);
  EXPECT_EQ(read("INT16", int16_t{-2}), -2);
  EXPECT_EQ(read("INT32", int32_t{1} << 30), 1 << 30);
  EXPECT_EQ(read("INT64", std::numeric_limits<int64_t>::min()), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(read("UINT8", uint8_t{255}), 255);
  EXPECT_EQ(read("UINT16", uint16_t{65535}), 65535);
  EXPECT_EQ(read("UINT32", ~uint32_t{0}), ~uint32_t{0});
  EXPECT_EQ(read("UINT64", ~uint64_t{0}), ~uint64_t{0});
  EXPECT_EQ(read("FP32", 0.5f), 0.5);
  EXPECT_EQ(read("FP64", 0.1), 0.1);
  for (const char* datatype : {"BOOL", "INT8", "INT64", "FP32", "BYTES", "FP16", ""}) {
    EXPECT_FALSE(ElementOfBytes(datatype, "three").ok()) << datatype;
    EXPECT_FALSE(ElementOfBytes(datatype, "").ok()) << datatype;
  }
}

}  // namespace
}  // namespace moed::http
