#include "server/http/upstream/daemon.h"

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <limits>
#include <utility>

#include "core/base/status.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace moed::http {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr auto kPause = std::chrono::seconds(1);  // before health is asked for again
constexpr int kReconnectMilliseconds = 500;
constexpr int kPingMilliseconds = 20'000;    // between pings, with and without calls
constexpr int kAnswerMilliseconds = 10'000;  // in which a ping is answered, else the connection is lost
constexpr int kMaxMessageBytes = 64 << 20;   // the daemon bounds its answers below it
constexpr size_t kReasonsKept = 16;          // that the log does not repeat

// gRPC asks again, in 2 to 3 s, where the connection ended before the daemon had begun to answer: it may have been ended for what
// others sent, and no large message arrives for two seconds after that (docs/reliability.md, floods). What the daemon refuses it
// marks.
constexpr char kAskAgain[] = R"({"methodConfig": [{"name": [{"service": "moe.v1.Inference"}], "retryPolicy": {
    "maxAttempts": 4, "initialBackoff": "2.5s", "maxBackoff": "2.5s", "backoffMultiplier": 1,
    "retryableStatusCodes": ["UNAVAILABLE"]}}]})";

grpc::ChannelArguments ArgumentsOfLarge(grpc::ChannelArguments arguments) {
  arguments.SetServiceConfigJSON(kAskAgain);
  arguments.SetInt(GRPC_ARG_PER_RPC_RETRY_BUFFER_SIZE, std::numeric_limits<int>::max());
  return arguments;
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const DaemonOptions& options,
                                           grpc::ChannelArguments arguments) {
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMilliseconds);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2 * kReconnectMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kAnswerMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);          // those of the environment are for what is outside
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // equal channels would share a connection
  return grpc::CreateCustomChannel(address, options.credentials, arguments);
}

absl::Status Absent(std::string_view why) { return absl::UnavailableError(ToAbsl(StrCat("the daemon does not serve: ", why))); }
absl::Status NotReached() { return Absent("it is not reached, or loads"); }

}  // namespace

class Daemon::HealthReader final : public StreamReader<HealthCheckResponse> {
 public:
  explicit HealthReader(Daemon& daemon, std::function<void()> next) : daemon_(daemon), next_(std::move(next)) {}
  void OnMessage(const HealthCheckResponse& message) override {
    daemon_.SetServing(message.status() == HealthCheckResponse::SERVING);
    next_();
  }
  void OnEnd(const grpc::Status& status) override { daemon_.OnWatchEnded(status); }

 private:
  Daemon& daemon_;
  const std::function<void()> next_;
};

Daemon::Daemon(const DaemonOptions& options)
    : token_(options.token),
      server_channel_(MakeChannel(options.server, options, options.arguments)),
      inference_(moe::v1::Inference::NewStub(server_channel_)),
      control_(moe::v1::Control::NewStub(
          options.control == options.server ? server_channel_ : MakeChannel(options.control, options, options.arguments))),
      model_(NotReached()) {
  const grpc::ChannelArguments arguments = ArgumentsOfLarge(options.arguments);
  for (size_t i = 0; i < kLargeConnections; ++i)
    large_.push_back(moe::v1::Inference::NewStub(MakeChannel(options.server, options, arguments)));
  WatchHealth();
}

Daemon::~Daemon() = default;

void Daemon::End() {
  std::function<void()> cancel_watch;
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    cancel_watch = cancel_watch_;
    if (pause_ != nullptr) pause_->Cancel();
  }
  if (cancel_watch) cancel_watch();
  calls_.WaitUntilNone();
}

absl::StatusOr<ServedModel> Daemon::model() const {
  absl::MutexLock lock(&mutex_);
  return model_;
}

bool Daemon::serves() const {
  absl::MutexLock lock(&mutex_);
  return serving_ && !end_of_serving_ && model_.ok();
}

void Daemon::EndServing() {
  absl::MutexLock lock(&mutex_);
  end_of_serving_ = true;
  if (tell_serving_) tell_serving_(false);
}

void Daemon::OnServing(std::function<void(bool)> tell) {
  absl::MutexLock lock(&mutex_);
  tell_serving_ = std::move(tell);
  if (tell_serving_) tell_serving_(serving_ && !end_of_serving_);
}

moe::v1::Inference::Stub& Daemon::inference(std::shared_ptr<const google::protobuf::MessageLite> request, PassingCall& call) {
  const size_t bytes = request->ByteSizeLong();
  return inference(
      bytes, [request = std::move(request)] {}, call);
}

moe::v1::Inference::Stub& Daemon::inference(size_t bytes, std::function<void()> make, PassingCall& call) {
  if (bytes <= kLargeBytes) {
    make();
    return *inference_;
  }
  absl::MutexLock lock(&mutex_);
  const auto& connection = *std::ranges::min_element(large_, {}, [](const auto& stub) { return stub.use_count(); });
  call.GoThrough(large_passage_, bytes, std::move(make), connection);
  return *connection;
}

void Daemon::WatchHealth() {
  auto call = std::make_shared<StreamCall<HealthCheckResponse>>(calls_);
  auto reader = std::make_shared<HealthReader>(*this, [weak = std::weak_ptr(call)] {
    if (const auto alive = weak.lock()) alive->Next();
  });
  const HealthCheckRequest whole_server;
  call->Start(std::move(reader), [this, &whole_server](grpc::ClientContext* context, auto* reactor) {
    Health::NewStub(server_channel_)->async()->Watch(context, &whole_server, reactor);
  });
  absl::MutexLock lock(&mutex_);
  cancel_watch_ = [call] { call->Cancel(); };
  if (ending_) call->Cancel();
}

void Daemon::WatchAgain() {
  absl::MutexLock lock(&mutex_);
  if (ending_) return;
  calls_.Add();
  pause_ = std::make_unique<grpc::Alarm>();
  pause_->Set(std::chrono::system_clock::now() + kPause, [this](bool) {
    WatchHealth();
    calls_.Remove();
  });
}

void Daemon::SetServing(bool serving) {
  int change = 0;
  {
    absl::MutexLock lock(&mutex_);
    not_reached_.clear();
    if (serving == serving_) return;
    serving_ = serving;
    change = ++changes_;
    if (serving) model_ = NotReached();  // it may be another one
    if (tell_serving_) tell_serving_(serving && !end_of_serving_);
  }
  spdlog::info("the daemon {}", serving ? "serves" : "does not serve");
  AskForModel(change);
}

void Daemon::OnWatchEnded(const grpc::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    model_ = NotReached();
    ++changes_;
    if (std::exchange(serving_, false) && tell_serving_) tell_serving_(false);
    if (not_reached_.size() == kReasonsKept) not_reached_.clear();
    if (!ending_ && not_reached_.insert(status.error_message()).second) {
      spdlog::warn("the daemon is not reached: {}", status.error_message());
    }
  }
  large_passage_.EndWaiting();
  WatchAgain();
}

void Daemon::AskForModel(int change) {
  auto call = std::make_shared<UnaryCall<moe::v1::ModelInfo>>(calls_);
  const auto done = [this, change](const grpc::Status& status, const moe::v1::ModelInfo& info) {
    OnModelInfo(change, status, info);
  };
  call->Start(done, [this](grpc::ClientContext* context, moe::v1::ModelInfo* info, auto* unary) {
    static const moe::v1::GetModelInfoRequest kRequest;
    if (!token_.empty()) context->AddMetadata("authorization", "Bearer " + token_);
    control_->async()->GetModelInfo(context, &kRequest, info, unary);
  });
}

// A daemon that serves has a model, whether it tells of it or not. One that does not has none where it says so.
void Daemon::OnModelInfo(int change, const grpc::Status& status, const moe::v1::ModelInfo& info) {
  absl::MutexLock lock(&mutex_);
  if (change != changes_) return;
  if (!serving_) {
    const grpc::StatusCode code = status.error_code();
    const bool has_none = code == grpc::StatusCode::FAILED_PRECONDITION || code == grpc::StatusCode::UNAVAILABLE;
    if (has_none && model_.ok()) model_ = Absent(status.error_message());
    return;
  }
  if (!status.ok()) {
    spdlog::warn("the model has no name (--model-name, --server-token-file): moe.v1.Control.GetModelInfo: {}",
                 status.error_message());
  }
  model_ = ServedModel{.store = std::filesystem::path(info.store_path()).stem().string(),
                       .max_context = info.max_context(),
                       .since_unix_seconds = std::time(nullptr)};
}

}  // namespace moed::http
