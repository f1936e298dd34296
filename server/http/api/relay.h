// Answers of the daemon on their way to a client: message by message, as fast as it takes them, or whole.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "server/http/api/passed_headers.h"
#include "server/http/transport/exchange.h"
#include "server/http/upstream/call.h"

namespace moed::http {

// Writes one answer in the form of an API. Used by one thread at a time.
template <class Response>
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual std::string Events(const Response& message) = 0;         // of a stream; may be empty
  virtual std::string LastEvents() = 0;                            // after the last message
  virtual std::string ErrorEvent(const grpc::Status& status) = 0;  // instead, where the stream broke off
  virtual HttpReply Whole(const Response& answer) = 0;
  virtual HttpReply Error(const grpc::Status& status) = 0;
};

// A stream. Errors before the first message still have a status of HTTP.
template <class Response>
class StreamRelay final : public StreamReader<Response>, public std::enable_shared_from_this<StreamRelay<Response>> {
 public:
  // `begin` as for StreamCall::Start.
  template <class Begin>
  static void Start(CallCount& count, std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerWriter<Response>> writer,
                    Begin begin) {
    auto call = std::make_shared<StreamCall<Response>>(count);
    auto relay = std::shared_ptr<StreamRelay>(new StreamRelay(exchange, std::move(writer), call));
    call->Start(std::move(relay), std::move(begin));
    exchange->OnGone([call] { call->Cancel(); });
  }

  void OnMessage(const Response& message) override {
    const auto call = call_.lock();  // alive: it is what calls
    std::string events = writer_->Events(message);
    if (events.empty()) return call->Next();
    if (!std::exchange(begun_, true)) exchange_->StartStream("text/event-stream", QueueHeaders(call->initial_metadata()));
    exchange_->Write(std::move(events), [call] { call->Next(); });
  }

  void OnEnd(const grpc::Status& status) override {
    if (status.ok()) {
      exchange_->EndStream(writer_->LastEvents());
    } else if (begun_) {
      exchange_->EndStream(writer_->ErrorEvent(status));
    } else {
      exchange_->Reply(writer_->Error(status));
    }
  }

 private:
  StreamRelay(std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerWriter<Response>> writer,
              const std::shared_ptr<StreamCall<Response>>& call)
      : exchange_(std::move(exchange)), writer_(std::move(writer)), call_(call) {}

  const std::shared_ptr<Exchange> exchange_;
  const std::unique_ptr<AnswerWriter<Response>> writer_;
  const std::weak_ptr<StreamCall<Response>> call_;
  bool begun_ = false;
};

// The whole answer. `begin` as for UnaryCall::Start.
template <class Response, class Begin>
void RelayWhole(CallCount& count, const std::shared_ptr<Exchange>& exchange, std::shared_ptr<AnswerWriter<Response>> writer,
                Begin begin) {
  auto call = std::make_shared<UnaryCall<Response>>(count);
  call->Start(
      [exchange, writer, call = call.get()](const grpc::Status& status, const Response& answer) {
        if (!status.ok()) return exchange->Reply(writer->Error(status));
        HttpReply reply = writer->Whole(answer);
        for (Header& header : QueueHeaders(call->initial_metadata())) reply.headers.push_back(std::move(header));
        exchange->Reply(std::move(reply));
      },
      std::move(begin));
  exchange->OnGone([call] { call->Cancel(); });
}

}  // namespace moed::http
