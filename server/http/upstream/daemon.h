// The daemon that is spoken to: its channel, whether it serves, and what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/alarm.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "moe/v1/control.grpc.pb.h"
#include "moe/v1/inference.grpc.pb.h"
#include "server/http/upstream/call.h"
#include "server/http/upstream/passage.h"

namespace moed::http {

struct ServedModel {
  std::string store;    // the store's name without folder and ending; "" where Control is not reached
  int max_context = 0;  // tokens; 0 likewise
  int64_t since_unix_seconds = 0;
};

struct DaemonOptions {
  std::string server;   // addresses: of moe.v1.Inference
  std::string control;  // and of moe.v1.Control
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  grpc::ChannelArguments arguments = {};  // that belong to the credentials
  std::string token = {};                 // for questions of this program's own; "" = none
};

// Thread-safe. Follows the daemon's health (grpc.health.v1) for as long as it lives, and connects again by itself. A daemon that
// is frozen or vanished is noticed within 30 s. The log has why it is not reached, once for each reason,
// also where they take turns.
//
// A daemon that has served and says that it does not serve any more may still take requests for a while
// (--drain-delay-seconds): it keeps its model, and is asked, unless it says that it has none.
class Daemon {
 public:
  explicit Daemon(const DaemonOptions& options);
  ~Daemon();  // after End

  // Waits for the calls that are under way, and lets go of the daemon. Once.
  void End();

  // UNAVAILABLE while the daemon is not reached or has no model, with its reason where it gave one.
  absl::StatusOr<ServedModel> model() const;
  // It has a model and is healthy, and EndServing was not called: new requests had better come here.
  bool serves() const;
  // This program is about to end: serves() and who is told by OnServing hear of no daemon any more.
  void EndServing();

  // `tell` is called at once and whenever the daemon begins or ceases to serve; it must not call the Daemon. Null: nobody is told
  // any more, when this returns.
  void OnServing(std::function<void(bool serves)> tell);

  // For a request of a call that is not started yet. Few large ones are on their way at once, each on the connection that has the
  // fewest calls of such: the daemon ends one that sends too much, with all of its calls (docs/reliability.md, floods). `make`
  // makes it, of so many bytes, when it goes: so those that wait take no room.
  moe::v1::Inference::Stub& inference(size_t bytes, std::function<void()> make, PassingCall& call);
  // The same of one that is there.
  moe::v1::Inference::Stub& inference(std::shared_ptr<const google::protobuf::MessageLite> request, PassingCall& call);
  moe::v1::Control::Stub& control() { return *control_; }
  CallCount& calls() { return calls_; }

 private:
  static constexpr size_t kLargeBytes = 16 << 10;  // as many at once as there may be connections stay far from such an end
  static constexpr size_t kLargeUnderWay = size_t{1} << 20;  // bytes of larger ones; likewise
  static constexpr size_t kLargeConnections = 16;            // twice as many as a daemon computes where it is told nothing else

  class HealthReader;
  void WatchHealth();
  void WatchAgain();
  void SetServing(bool serving);
  void OnWatchEnded(const grpc::Status& status);
  void AskForModel(int change);
  void OnModelInfo(int change, const grpc::Status& status, const moe::v1::ModelInfo& info);

  const std::string token_;
  std::shared_ptr<grpc::Channel> server_channel_;
  std::unique_ptr<moe::v1::Inference::Stub> inference_;
  std::unique_ptr<moe::v1::Control::Stub> control_;
  Passage large_passage_{kLargeUnderWay};
  CallCount calls_;

  mutable absl::Mutex mutex_;
  std::vector<std::shared_ptr<moe::v1::Inference::Stub>> large_ ABSL_GUARDED_BY(mutex_);  // each is held by its calls, too
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> cancel_watch_ ABSL_GUARDED_BY(mutex_);
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
  int changes_ ABSL_GUARDED_BY(mutex_) = 0;  // of serving_: an answer about the model is of one of them
  bool end_of_serving_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void(bool)> tell_serving_ ABSL_GUARDED_BY(mutex_);
  absl::StatusOr<ServedModel> model_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::string> not_reached_ ABSL_GUARDED_BY(mutex_);  // why, as the log was told since it was reached
  std::unique_ptr<grpc::Alarm> pause_ ABSL_GUARDED_BY(mutex_);  // a new one each time: it may not be set by its own callback
};

}  // namespace moed::http
