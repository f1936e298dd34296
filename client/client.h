// A C++ client of moed: blocking calls over one channel, streams by callback, cancellation from any thread.
//
//   MOED_ASSIGN_OR_RETURN(auto client, Client::Connect("127.0.0.1:50051"));
//   moe::v1::GenerateRequest request;
//   request.set_text("Once upon a time");
//   absl::Status status = client->GenerateStream(request, [](const moe::v1::GenerateResponse& part) {
//     std::cout << part.text() << std::flush;
//     return true;  // false cancels
//   });
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/channel_credentials.h"
#include "moe/v1/control.grpc.pb.h"
#include "moe/v1/inference.grpc.pb.h"

namespace moed {

struct ClientOptions {
  double connect_timeout_seconds = 5;          // Connect fails with UNAVAILABLE after it
  std::optional<double> call_timeout_seconds;  // the deadline of every call; none by default
  int max_receive_bytes = 64 << 20;
  // While calls are under way the server is asked so often whether it is there, and a connection over which no answer comes
  // within as much time fails with UNAVAILABLE. The daemon takes no more than one such question in 5 s.
  double keepalive_seconds = 20;
  ClientTls tls;
  std::string token;  // presented with every call as `authorization: Bearer TOKEN`; "" = none
  // A token is shown in plain text to this machine alone (loopback, unix:PATH), unless this is set.
  bool insecure = false;
};

// Ends the calls it was given to, now or as soon as they start. Thread-safe.
class Cancellation {
 public:
  void Cancel();
  bool cancelled() const;

 private:
  friend class Client;
  // A call under way; `cancellation` may be null.
  class Registration {
   public:
    Registration(Cancellation* cancellation, grpc::ClientContext& context);
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    Cancellation* const cancellation_;
    grpc::ClientContext& context_;
  };
  mutable absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<grpc::ClientContext*> active_ ABSL_GUARDED_BY(mutex_);
};

// Thread-safe. Statuses carry the server's code and message; `field: what is wrong` lines of its details are appended. Calls with
// a session_id that FitsMetadata carry it in the metadata moe-session-id, too, for proxies that choose a server by it.
class Client {
 public:
  // `address`: host:port, [v6]:port or unix:PATH. INVALID_ARGUMENT for another form, for files of TLS that
  // cannot be used, and for a token that would be shown in plain text; UNAVAILABLE when nobody answers in time.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& address, const ClientOptions& options = {});

  // `cancellation` may be null. `on_response` runs on the caller's thread; false cancels the call (CANCELLED).
  absl::Status GenerateStream(const moe::v1::GenerateRequest& request,
                              absl::FunctionRef<bool(const moe::v1::GenerateResponse&)> on_response,
                              Cancellation* cancellation = nullptr);
  absl::StatusOr<moe::v1::GenerateResponse> Generate(const moe::v1::GenerateRequest& request,
                                                     Cancellation* cancellation = nullptr);
  // The same of conversations.
  absl::Status ChatStream(const moe::v1::ChatRequest& request, absl::FunctionRef<bool(const moe::v1::ChatResponse&)> on_response,
                          Cancellation* cancellation = nullptr);
  absl::StatusOr<moe::v1::ChatResponse> Chat(const moe::v1::ChatRequest& request, Cancellation* cancellation = nullptr);
  absl::StatusOr<moe::v1::ScoreResponse> Score(const moe::v1::ScoreRequest& request, Cancellation* cancellation = nullptr);
  absl::StatusOr<moe::v1::TokenizeResponse> Tokenize(const moe::v1::TokenizeRequest& request);
  absl::StatusOr<moe::v1::DetokenizeResponse> Detokenize(const moe::v1::DetokenizeRequest& request);
  absl::Status DeleteSession(const std::string& session_id);

  absl::StatusOr<moe::v1::ServerInfo> GetServerInfo();
  absl::StatusOr<moe::v1::ModelInfo> GetModelInfo();
  absl::StatusOr<moe::v1::Stats> GetStats(double window_seconds);
  absl::StatusOr<moe::v1::CacheState> GetCacheState(int hottest);
  absl::StatusOr<moe::v1::ResizeMemoryResponse> ResizeMemory(uint64_t memory_budget_bytes);
  absl::StatusOr<moe::v1::PinExpertsResponse> PinExperts(const moe::v1::PinExpertsRequest& request);
  absl::StatusOr<moe::v1::PrefetchExpertsResponse> PrefetchExperts(const moe::v1::PrefetchExpertsRequest& request);
  absl::StatusOr<uint64_t> SaveResidency();     // experts in the file
  absl::StatusOr<uint64_t> RestoreResidency();  // experts that are read
  absl::Status SetLogLevel(const std::string& level);
  absl::StatusOr<moe::v1::ListSessionsResponse> ListSessions(int most);
  absl::Status Abort(const std::string& request_id);
  absl::StatusOr<moe::v1::DrainResponse> Drain();
  absl::Status Undrain();
  absl::Status LoadModel(const moe::v1::LoadModelRequest& request,
                         absl::FunctionRef<bool(const moe::v1::LoadModelProgress&)> on_progress,
                         Cancellation* cancellation = nullptr);
  absl::StatusOr<moe::v1::UnloadModelResponse> UnloadModel(const moe::v1::UnloadModelRequest& request,
                                                           Cancellation* cancellation = nullptr);

  // grpc.health.v1. OK = SERVING, UNAVAILABLE = not serving, NOT_FOUND = no such service. "" = the whole server.
  absl::Status CheckHealth(const std::string& service);

 private:
  Client(std::shared_ptr<grpc::Channel> channel, const ClientOptions& options);

  template <class Response, class Call>
  absl::StatusOr<Response> Unary(Cancellation* cancellation, Call call, const std::string& session_id = "");
  template <class Response, class Call>
  absl::Status Stream(absl::FunctionRef<bool(const Response&)> on_response, Cancellation* cancellation,
                      const std::string& session_id, Call call);
  // Deadline and token.
  void Describe(grpc::ClientContext& context) const;

  const ClientOptions options_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<moe::v1::Inference::Stub> inference_;
  std::unique_ptr<moe::v1::Control::Stub> control_;
};

}  // namespace moed
