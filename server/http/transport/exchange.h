// A request over HTTP and the way back to whoever sent it.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace moed::http {

struct Header {
  std::string name;  // of a request: in lower case
  std::string value;
};

struct HttpRequest {
  std::string id;            // made up here, 32 hexadecimal digits; in the log and in the answer's x-request-id
  std::string trace_parent;  // its traceparent as core/base/trace_parent.h reads it; "" = none, or several
  std::string method;
  std::string path;  // without the query
  std::vector<Header> headers;
  std::string body;
  std::string token;           // that the caller presented; set by who admits it
  std::string caller;          // the name of whose token it is, likewise; "" = none is needed
  std::string_view id_header;  // a literal: in which the answer has the id once more, of who admits or handles it; "" = none

  // The header's value, "" where there is none; the first of several.
  std::string_view Value(std::string_view name) const {
    for (const Header& header : headers) {
      if (header.name == name) return header.value;
    }
    return "";
  }
};

// Of events. Clients that are told no charset guess another one.
inline constexpr char kEventStream[] = "text/event-stream; charset=utf-8";

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<Header> headers = {};
};

inline constexpr char kTooManyLargeRequests[] = "too many large requests at once";

// Thread-safe. What is called after the answer's end, or after the client has gone, does nothing. Keep it by shared_ptr for as
// long as the answer is not whole.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Of the thread that handles the request, until it returns: `body` may be taken out.
  virtual HttpRequest& request() = 0;

  // Likewise: what is made of the body takes so many bytes, which count until the answer's end where they are more than its own.
  // False: with others it is too much, and nothing more is counted.
  virtual bool HoldRequest(size_t bytes) = 0;
  // So many bytes of the answer wait for the rest of it. False: there is no room, also where slow clients are given up.
  virtual bool HoldAnswer(size_t bytes) = 0;

  // The whole answer.
  virtual void Reply(HttpReply reply) = 0;

  // An answer in parts. Its head goes out with the first part. The next Write is not before `written` has been called, on a
  // thread of the server: so a client that does not read holds back whoever writes. It is not called once the client has gone.
  virtual void StartStream(std::string content_type, std::vector<Header> headers = {}) = 0;
  virtual void Write(std::string part, std::function<void()> written) = 0;
  virtual void EndStream(std::string last_part) = 0;

  // For which a stream may be silent before it is to say that it goes on, or proxies would take it for dead.
  virtual std::chrono::seconds longest_silence() const = 0;

  // Called once if the client goes away, or is given up, before its answer is whole; at once if it is gone already.
  virtual void OnGone(std::function<void()> gone) = 0;
};

}  // namespace moed::http
