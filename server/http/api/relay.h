// Answers of the daemon on their way to a client: message by message, as fast as it takes them, or whole.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/alarm.h"
#include "server/http/api/choice_calls.h"
#include "server/http/api/passed_headers.h"
#include "server/http/transport/exchange.h"
#include "server/http/upstream/call.h"

namespace moed::http {

// Writes one answer in the form of an API. Used by one thread at a time. APIs whose answers may have several choices, each an
// answer of the daemon, overload Select and Keep, too.
template <class Response>
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // What comes next is of this choice, until another one is selected; without it all is of the first.
  virtual void Select(size_t) {}
  virtual std::string Events(const Response& message) = 0;         // of a stream; may be empty
  virtual std::string LastEvents() = 0;                            // after the last message
  virtual std::string ErrorEvent(const grpc::Status& status) = 0;  // instead, where the stream broke off
  virtual std::string Ping() { return ": ping\n\n"; }              // of a stream: nothing has come for a while
  // Of all choices but the one that comes last, in the order in which they come.
  virtual grpc::Status Keep(const Response&) { return grpc::Status::OK; }
  virtual size_t kept_bytes() const { return 0; }       // of all that was kept
  virtual size_t request_bytes() const { return 0; }    // that it holds of the request
  virtual HttpReply Whole(const Response& answer) = 0;  // of the last, and of what was kept
  virtual HttpReply Error(const grpc::Status& status) = 0;
};

// A stream, into which its choices come as they are computed. It begins with the first message, or with a ping where that takes
// long; errors before still have a status of HTTP.
template <class Response>
class StreamRelay final : public std::enable_shared_from_this<StreamRelay<Response>> {
 public:
  using Call = StreamCall<Response>;
  // Begins the call for one of the choices, as for StreamCall::Start, and returns its request, which is kept until then. Any
  // thread, also several at once.
  using Begin = std::function<std::shared_ptr<const void>(size_t choice, grpc::ClientContext* context, Call* call)>;

  static void Start(CallCount& count, std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerWriter<Response>> writer,
                    size_t choices, Begin begin) {
    auto relay = std::shared_ptr<StreamRelay>(new StreamRelay(count, exchange, std::move(writer), choices, std::move(begin)));
    relay->BeginMore();
    relay->WatchSilence();
    exchange->OnGone([relay = std::weak_ptr<StreamRelay>(relay)] {
      if (const auto answered = relay.lock()) answered->calls_.Stop();
    });
  }

 private:
  using Answer = typename ChoiceCalls<Call>::Answer;

  // The choice with which all are ended, or that failed.
  struct Last {
    size_t choice;
    grpc::Status status;
  };

  // Of one choice.
  class Reader final : public StreamReader<Response> {
   public:
    Reader(std::shared_ptr<StreamRelay> relay, size_t choice, const std::shared_ptr<Call>& call)
        : relay_(std::move(relay)), choice_(choice), call_(call) {}
    void OnBegin(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) override { relay_->TakeHeaders(metadata); }
    void OnMessage(const Response& message) override { relay_->Take(choice_, call_.lock(), message); }
    void OnEnd(const grpc::Status& status) override { relay_->End(choice_, status); }

   private:
    const std::shared_ptr<StreamRelay> relay_;
    const size_t choice_;
    const std::weak_ptr<Call> call_;  // alive when it calls
  };

  StreamRelay(CallCount& count, std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerWriter<Response>> writer,
              size_t choices, Begin begin)
      : count_(count), exchange_(std::move(exchange)), begin_(std::move(begin)), calls_(choices), writer_(std::move(writer)) {}

  void BeginMore() {
    calls_.BeginMore([this](size_t choice) {
      auto call = std::make_shared<Call>(count_);
      std::shared_ptr<const void> request;
      call->Start(std::make_shared<Reader>(this->shared_from_this(), choice, call),
                  [&](grpc::ClientContext* context, Call* begun) { request = begin_(choice, context, begun); });
      return call;
    });
  }

  // Of the first call that says something of the queue, unless the stream has begun.
  void TakeHeaders(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) {
    absl::MutexLock lock(&mutex_);
    if (!begun_ && headers_.empty()) headers_ = QueueHeaders(metadata);
  }

  void WatchSilence() {
    auto alarm = std::make_unique<grpc::Alarm>();  // a new one each time: it may not be set by its own callback
    alarm->Set(std::chrono::system_clock::now() + exchange_->longest_silence(), [relay = this->weak_from_this()](bool) {
      if (const auto silent = relay.lock()) silent->OnAlarm();
    });
    absl::MutexLock lock(&mutex_);
    alarm_.swap(alarm);
  }

  void OnAlarm() {
    {
      absl::MutexLock lock(&mutex_);
      if (last_) return;
      if (std::exchange(silent_, true) && !writing_) unwritten_ += writer_->Ping();
    }
    Write();
    WatchSilence();
  }

  void Take(size_t choice, std::shared_ptr<Call> call, const Response& message) {
    TakeHeaders(call->initial_metadata());
    {
      absl::MutexLock lock(&mutex_);
      writer_->Select(choice);
      const std::string events = writer_->Events(message);
      if (!events.empty()) {
        silent_ = false;
        unwritten_ += events;
        behind_.push_back(std::exchange(call, nullptr));
      }
    }
    if (call != nullptr) return call->Next();
    Write();
  }

  void End(size_t choice, const grpc::Status& status) {
    switch (calls_.Ended(choice, status)) {
      case Answer::kStopped:
        return;
      case Answer::kGoesOn:
        return BeginMore();
      case Answer::kFailed:
        calls_.Stop();
        [[fallthrough]];
      case Answer::kWhole: {
        absl::MutexLock lock(&mutex_);
        last_ = Last{choice, status};
      }
    }
    Write();
  }

  // What there is, unless something is being written: the end comes after it.
  void Write() {
    std::string part;
    std::vector<std::shared_ptr<Call>> calls;
    std::optional<HttpReply> error;
    bool begins = false, ends = false;
    {
      absl::MutexLock lock(&mutex_);
      if (writing_ || (unwritten_.empty() && !last_)) return;
      writing_ = true;
      ends = last_.has_value();
      if (ends) writer_->Select(last_->choice);
      if (ends && !last_->status.ok() && !begun_) error = writer_->Error(last_->status);
      begins = !std::exchange(begun_, true);
      part = std::exchange(unwritten_, {});
      calls.swap(behind_);
      if (ends && !error) part += last_->status.ok() ? writer_->LastEvents() : writer_->ErrorEvent(last_->status);
    }
    if (error) return exchange_->Reply(*std::move(error));
    if (begins) exchange_->StartStream(kEventStream, std::move(headers_));
    if (ends) return exchange_->EndStream(std::move(part));
    exchange_->Write(std::move(part), [self = this->shared_from_this(), calls = std::move(calls)] { self->Written(calls); });
  }

  void Written(const std::vector<std::shared_ptr<Call>>& calls) {
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
    }
    for (const auto& call : calls) call->Next();
    Write();
  }

  CallCount& count_;
  const std::shared_ptr<Exchange> exchange_;
  const Begin begin_;
  ChoiceCalls<Call> calls_;
  absl::Mutex mutex_;
  const std::unique_ptr<AnswerWriter<Response>> writer_ ABSL_GUARDED_BY(mutex_);
  std::string unwritten_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Call>> behind_ ABSL_GUARDED_BY(mutex_);  // whose next messages are asked for once that is written
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;                       // and, once the end is, for ever
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Last> last_ ABSL_GUARDED_BY(mutex_);
  bool silent_ ABSL_GUARDED_BY(mutex_) = true;  // since the last alarm nothing has come
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
  std::vector<Header> headers_;  // guarded by mutex_ until begun_, then of who begins the stream
};

// The whole answer.
template <class Response>
class WholeRelay final : public std::enable_shared_from_this<WholeRelay<Response>> {
 public:
  using Call = UnaryCall<Response>;
  // As that of a stream.
  using Begin =
      std::function<std::shared_ptr<const void>(size_t choice, grpc::ClientContext* context, Response* response, Call* call)>;

  static void Start(CallCount& count, std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerWriter<Response>> writer,
                    size_t choices, Begin begin) {
    auto relay = std::shared_ptr<WholeRelay>(new WholeRelay(count, exchange, std::move(writer), choices, std::move(begin)));
    relay->BeginMore();
    exchange->OnGone([relay = std::weak_ptr<WholeRelay>(relay)] {
      if (const auto answered = relay.lock()) answered->calls_.Stop();
    });
  }

 private:
  using Answer = typename ChoiceCalls<Call>::Answer;

  WholeRelay(CallCount& count, std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerWriter<Response>> writer, size_t choices,
             Begin begin)
      : count_(count), exchange_(std::move(exchange)), begin_(std::move(begin)), calls_(choices), writer_(std::move(writer)) {}

  void BeginMore() {
    calls_.BeginMore([this](size_t choice) {
      auto call = std::make_shared<Call>(count_);
      std::shared_ptr<const void> request;
      call->Start([self = this->shared_from_this(), choice, call = call.get()](
                      const grpc::Status& status, const Response& answer) { self->Take(choice, *call, status, answer); },
                  [&](grpc::ClientContext* context, Response* response, Call* begun) {
                    request = begin_(choice, context, response, begun);
                  });
      return call;
    });
  }

  void Take(size_t choice, Call& call, const grpc::Status& status, const Response& answer) {
    std::optional<HttpReply> reply;
    {
      absl::MutexLock lock(&mutex_);
      const Answer whole = calls_.Ended(choice, status);
      if (replied_) return;
      writer_->Select(choice);
      switch (whole) {
        case Answer::kStopped:
          return;
        case Answer::kGoesOn:
          if (!status.ok()) break;
          if (const grpc::Status kept = Keep(answer); !kept.ok()) reply = writer_->Error(kept);
          break;
        case Answer::kFailed:
          reply = writer_->Error(status);
          break;
        case Answer::kWhole:
          reply = writer_->Whole(answer);
          for (Header& header : QueueHeaders(call.initial_metadata())) reply->headers.push_back(std::move(header));
      }
      replied_ = reply.has_value();
    }
    if (!reply) return BeginMore();
    calls_.Stop();
    exchange_->Reply(*std::move(reply));
  }

  grpc::Status Keep(const Response& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const grpc::Status kept = writer_->Keep(answer);
    if (!kept.ok() || exchange_->HoldAnswer(writer_->kept_bytes())) return kept;
    return {grpc::StatusCode::UNAVAILABLE, "too many large answers at once"};
  }

  CallCount& count_;
  const std::shared_ptr<Exchange> exchange_;
  const Begin begin_;
  ChoiceCalls<Call> calls_;
  absl::Mutex mutex_;
  const std::unique_ptr<AnswerWriter<Response>> writer_ ABSL_GUARDED_BY(mutex_);
  bool replied_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace moed::http
