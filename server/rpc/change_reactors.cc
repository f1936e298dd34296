#include "server/rpc/change_reactors.h"

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/wire/error_details.h"

namespace moed {
namespace {

// Holds itself until OnDone: whoever tells of a change meanwhile finds it or nothing. gRPC may call back while an operation is
// begun, so none is begun under the lock.
class ProgressReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public ModelChange::Watcher {
 public:
  using MessageOf = std::function<grpc::ByteBuffer(const ModelChange::State&)>;
  static ProgressReactor* Begin(std::shared_ptr<ModelChange> change, MessageOf message) {
    auto reactor = std::make_shared<ProgressReactor>(std::move(change), std::move(message));
    reactor->self_ = reactor;
    reactor->change_->Watch(reactor);
    reactor->OnChange();
    return reactor.get();
  }
  ProgressReactor(std::shared_ptr<ModelChange> change, MessageOf message)
      : change_(std::move(change)), message_(std::move(message)) {}

  void OnChange() override {
    std::optional<grpc::Status> end;
    {
      absl::MutexLock lock(&mutex_);
      if (busy_) return;
      const ModelChange::State state = change_->Now();
      if (gone_) {
        end = grpc::Status::CANCELLED;
      } else if (state.ended && (!state.status.ok() || told_end_)) {
        end = ToGrpcStatus(state.status);
      } else if (state.version == told_) {
        return;
      } else {
        told_ = state.version;
        told_end_ = state.ended;
        written_ = message_(state);
      }
      busy_ = true;
    }
    if (end.has_value()) {
      Finish(*end);
    } else {
      StartWrite(&written_);
    }
  }
  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      busy_ = false;
      gone_ = gone_ || !ok;
    }
    OnChange();
  }
  void OnCancel() override {
    {
      absl::MutexLock lock(&mutex_);
      gone_ = true;
    }
    OnChange();
  }
  void OnDone() override { const auto last = std::move(self_); }

 private:
  const std::shared_ptr<ModelChange> change_;
  const MessageOf message_;
  std::shared_ptr<ProgressReactor> self_;
  absl::Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // an operation is under way, or the last one was begun
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t told_ ABSL_GUARDED_BY(mutex_) = ~uint64_t{0};
  bool told_end_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ByteBuffer written_;  // by the operation under way
};

class EndReactor final : public grpc::ServerUnaryReactor, public ModelChange::Watcher {
 public:
  static EndReactor* Begin(std::shared_ptr<ModelChange> change, std::function<void()> fill) {
    auto reactor = std::make_shared<EndReactor>(std::move(change), std::move(fill));
    reactor->self_ = reactor;
    reactor->change_->Watch(reactor);
    reactor->OnChange();
    return reactor.get();
  }
  EndReactor(std::shared_ptr<ModelChange> change, std::function<void()> fill)
      : change_(std::move(change)), fill_(std::move(fill)) {}

  void OnChange() override {
    const ModelChange::State state = change_->Now();
    if (state.ended) FinishOnce(ToGrpcStatus(state.status), state.status.ok());
  }
  void OnCancel() override { FinishOnce(grpc::Status::CANCELLED, false); }
  void OnDone() override { const auto last = std::move(self_); }

 private:
  void FinishOnce(const grpc::Status& status, bool fills) {
    {
      absl::MutexLock lock(&mutex_);
      if (std::exchange(finished_, true)) return;
    }
    if (fills) fill_();
    Finish(status);
  }

  const std::shared_ptr<ModelChange> change_;
  const std::function<void()> fill_;
  std::shared_ptr<EndReactor> self_;
  absl::Mutex mutex_;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* TellOfChange(std::shared_ptr<ModelChange> change,
                                                         std::function<grpc::ByteBuffer(const ModelChange::State&)> message) {
  return ProgressReactor::Begin(std::move(change), std::move(message));
}

grpc::ServerUnaryReactor* AwaitChange(std::shared_ptr<ModelChange> change, std::function<void()> fill) {
  return EndReactor::Begin(std::move(change), std::move(fill));
}

}  // namespace moed
