// One line for each request: who, what, of which trace, how it ended, how long it took. Never bodies, headers or queries.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace moed::http {

struct AccessRecord {
  std::string id;
  std::string trace_id;  // of the request's traceparent; "" = none
  std::string client;    // address without the port
  std::string token;     // the name of whose token was presented; "" = none is needed
  std::string method;
  std::string path;
  int status = 0;
  uint64_t request_bytes = 0;  // of the body
  uint64_t reply_bytes = 0;    // on the wire
  double first_byte_seconds = 0;
  double seconds = 0;
  bool gone = false;  // the client went away, or was given up, before the answer was whole
};

// Thread-safe. Never blocks: lines are written by a thread of their own, and when it falls behind the oldest are dropped.
class AccessLog {
 public:
  AccessLog();
  ~AccessLog();  // writes what is queued

  void Write(const AccessRecord& record);
  static std::string Line(const AccessRecord& record);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moed::http
