#include "server/http/inference/infer_stream.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/http/inference/cancellable_call.h"
#include "server/http/inference/encode.h"
#include "server/http/upstream/call.h"

namespace moed::http {
namespace {

using moe::v1::GenerateResponse;
using Upstream = StreamCall<GenerateResponse>;
using BidiReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

constexpr int kMostRunning = 16;  // requests of one stream; the next waits in the client

// Lives until OnDone by itself. At most one read and one write are under way, and nothing is begun after Finish: that comes when
// no request runs, all is written and nothing is being begun. gRPC is called without the lock, for reactions may follow at once,
// on other threads while the one that begins is still in gRPC, which does not bear that the call ends meanwhile.
class InferStream final : public BidiReactor, public CancellableCall, public std::enable_shared_from_this<InferStream> {
 public:
  InferStream(const InferenceParts& parts, grpc::CallbackServerContext* context)
      : CancellableCall(*context), parts_(parts), context_(*context) {}

  void Begin() {
    self_ = shared_from_this();
    absl::Status room = parts_.live.Add(self_);
    std::optional<ApiError> refusal;
    if (!room.ok()) refusal = ErrorOf(room);
    if (!refusal) refusal = CallerRefusal(parts_, context_);
    if (refusal) {
      {
        absl::MutexLock lock(&mutex_);
        finished_ = true;
      }
      return Finish(InferenceStatus(*refusal));
    }
    ReadNext();
  }

  void EndWhenIdle() override {
    {
      absl::MutexLock lock(&mutex_);
      draining_ = true;
    }
    FinishIfIdle();
  }

 private:
  class Answer;
  struct Outgoing {
    grpc::ByteBuffer message;
    std::function<void()> written;  // or dropped, because the client is gone; called once
  };

  void BeginAnswer(grpc::ByteBuffer message);

  void ReadNext() {
    const auto self = shared_from_this();
    {
      absl::MutexLock lock(&mutex_);
      if (reading_ || read_all_ || draining_ || finished_ || running_ == kMostRunning) return;
      reading_ = true;
      ++beginning_;
    }
    StartRead(&incoming_);
    OnBegun();
  }

  void OnReadDone(bool ok) override {
    grpc::ByteBuffer message;
    {
      absl::MutexLock lock(&mutex_);
      reading_ = false;
      read_all_ = !ok;
      if (ok && !finished_) {
        message.Swap(&incoming_);
        ++running_;
      }
    }
    if (message.Valid()) BeginAnswer(std::move(message));
    ReadNext();
    FinishIfIdle();
  }

  void Write(grpc::ByteBuffer message, std::function<void()> written) {
    bool idle = false, gone = false;
    {
      absl::MutexLock lock(&mutex_);
      gone = gone_;
      idle = outgoing_.empty();
      if (!gone) outgoing_.push_back({std::move(message), std::move(written)});
    }
    if (gone) return written();
    if (idle) WriteFirst();
  }

  void WriteFirst() {
    const auto self = shared_from_this();
    const grpc::ByteBuffer* message = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      message = &outgoing_.front().message;
      ++beginning_;
    }
    OnWriteBegun();
    StartWrite(message);
    OnBegun();
  }

  void OnBegun() {
    {
      absl::MutexLock lock(&mutex_);
      --beginning_;
    }
    FinishIfIdle();
  }

  void OnWriteDone(bool ok) override {
    const auto self = shared_from_this();
    OnWriteTaken();
    std::deque<Outgoing> ended;
    bool more = false;
    {
      absl::MutexLock lock(&mutex_);
      gone_ = gone_ || !ok;
      if (gone_) {
        ended.swap(outgoing_);
      } else {
        ended.push_back(std::move(outgoing_.front()));
        outgoing_.pop_front();
      }
      more = !outgoing_.empty();
    }
    if (more) WriteFirst();
    for (const Outgoing& each : ended) each.written();
    FinishIfIdle();
  }

  void OnCancel() override {
    std::vector<std::weak_ptr<Upstream>> upstream;
    {
      absl::MutexLock lock(&mutex_);
      cancelled_ = true;
      upstream = upstream_;
    }
    for (const auto& weak : upstream) {
      if (const auto call = weak.lock()) call->Cancel();
    }
  }

  // A call to the daemon that has begun.
  void Add(const std::shared_ptr<Upstream>& call) {
    bool cancelled = false;
    {
      absl::MutexLock lock(&mutex_);
      std::erase_if(upstream_, [](const auto& weak) { return weak.expired(); });
      upstream_.push_back(call);
      cancelled = cancelled_;
    }
    if (cancelled) call->Cancel();
  }

  void OnRequestEnded() {
    {
      absl::MutexLock lock(&mutex_);
      --running_;
    }
    ReadNext();
    FinishIfIdle();
  }

  void FinishIfIdle() {
    bool ends = false;
    {
      absl::MutexLock lock(&mutex_);
      if (finished_ || running_ > 0 || !outgoing_.empty() || beginning_ > 0 || !(read_all_ || draining_)) return;
      finished_ = true;
      ends = !read_all_;
    }
    Finish(ends ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is ending") : grpc::Status::OK);
  }

  void OnDone() override {
    parts_.live.Remove(this);
    WaitUntilNotGivenUp();
    const auto self = std::move(self_);
  }

  const InferenceParts& parts_;
  grpc::CallbackServerContext& context_;
  std::shared_ptr<InferStream> self_;
  grpc::ByteBuffer incoming_;  // of the read under way

  absl::Mutex mutex_;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  int beginning_ ABSL_GUARDED_BY(mutex_) = 0;      // reads and writes
  bool read_all_ ABSL_GUARDED_BY(mutex_) = false;  // the client sends nothing more
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;  // nothing more is read
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;  // a write failed: nothing more is written
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Outgoing> outgoing_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  std::vector<std::weak_ptr<Upstream>> upstream_ ABSL_GUARDED_BY(mutex_);
};

// One request of the stream. The daemon is asked for the next message when the client has taken the last. May be held for longer
// than the server lives: what is the server's goes before the stream is told of the end.
class InferStream::Answer final : public StreamReader<GenerateResponse> {
 public:
  Answer(std::shared_ptr<InferStream> stream, grpc::ByteBuffer& message, const std::shared_ptr<Upstream>& call)
      : stream_(std::move(stream)),
        call_(call),
        arrived_(std::in_place, stream_->parts_, stream_->context_, "ModelStreamInfer", message, Responses::kMany) {}

  const ArrivedRequest& arrived() const { return *arrived_; }

  void OnMessage(const GenerateResponse& message) override {
    const auto call = call_.lock();  // alive: it is what calls
    const std::optional<std::string> text = arrived_->texts().Take(message);
    if (!text) return call->Next();
    inference::ModelStreamInferResponse response;
    *response.mutable_infer_response() =
        MakeResponse(arrived_->names(), *text, message.has_finish() ? &message.finish() : nullptr);
    stream_->Write(Encode(response), [call] { call->Next(); });
  }

  void OnEnd(const grpc::Status& status) override {
    if (!status.ok()) return Refuse(ErrorOf(status, InferenceFieldNames()));
    arrived_.reset();
    stream_->OnRequestEnded();
  }

  void Refuse(const ApiError& error) {
    arrived_->OnEnd(error.status);
    grpc::ByteBuffer message = Encode(MakeStreamError(arrived_->names(), MessageOf(error)));
    arrived_.reset();
    stream_->Write(std::move(message), [stream = stream_] { stream->OnRequestEnded(); });
  }

 private:
  grpc::ByteBuffer Encode(const inference::ModelStreamInferResponse& response) {
    grpc::ByteBuffer message = ToByteBuffer(response);
    arrived_->OnReply(message.Length());
    return message;
  }

  const std::shared_ptr<InferStream> stream_;
  const std::weak_ptr<Upstream> call_;
  std::optional<ArrivedRequest> arrived_;  // until the end
};

void InferStream::BeginAnswer(grpc::ByteBuffer message) {
  const auto call = std::make_shared<Upstream>(parts_.daemon.calls());
  const auto answer = std::make_shared<Answer>(shared_from_this(), message, call);
  const ArrivedRequest& arrived = answer->arrived();
  if (arrived.refusal()) return answer->Refuse(*arrived.refusal());
  call->Start(answer, [&](grpc::ClientContext* context, auto* upstream) {
    arrived.Describe(*context);
    const std::shared_ptr<const moe::v1::GenerateRequest> request(answer, &arrived.message());
    parts_.daemon.inference(request, *upstream).async()->GenerateStream(context, request.get(), upstream);
  });
  Add(call);
}

}  // namespace

BidiReactor* BeginStream(const InferenceParts& parts, grpc::CallbackServerContext* context) {
  const auto stream = std::make_shared<InferStream>(parts, context);
  stream->Begin();
  return stream.get();
}

}  // namespace moed::http
