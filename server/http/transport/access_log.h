// One line for each request: who, what, of which trace, how it ended, how long it took. Never bodies, headers or queries.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/wire/refused_lines.h"

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

// Thread-safe. Never blocks: lines are written by a thread of their own, and when it falls behind the oldest are dropped. Of
// requests that are wrong (4xx, but 409 and 429) and have no token that is known ten a second have a line; that of the next says
// how many had none. /healthz, /readyz and /metrics have lines at the level "debug" as long as they are 200.
class AccessLog {
 public:
  // `count` is told of every request, in its thread, whether or not it has a line; may be empty.
  explicit AccessLog(std::function<void(const AccessRecord&)> count = {});
  ~AccessLog();  // writes what is queued

  void Write(const AccessRecord& record);
  // `left_out`: requests before it that have none.
  static std::string Line(const AccessRecord& record, uint64_t left_out = 0);

 private:
  struct Impl;
  const std::function<void(const AccessRecord&)> count_;
  std::unique_ptr<Impl> impl_;
  RefusedLines refused_;
};

}  // namespace moed::http
