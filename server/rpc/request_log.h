// One line for each call that ended: id, timings, counts. Never text, and of a session its digest alone.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/engine/engine.h"
#include "server/metrics/request_metrics.h"

namespace moed {

struct RequestRecord {
  std::string id;
  Method method = Method::kGenerate;
  absl::Status status;
  std::string session_id;
  bool admitted = false;                // the rest is set
  EndReason reason = EndReason::kStop;  // of generations
  FinishInfo finish;
};

// Thread-safe. Never blocks: lines are written by a thread of its own, and when it falls behind the oldest are dropped.
class RequestLog {
 public:
  // JSON lines into `path`, or with the normal log when it is empty. Errors name the path.
  static absl::StatusOr<std::unique_ptr<RequestLog>> Open(const std::string& path);
  ~RequestLog();  // writes what is queued

  void Write(const RequestRecord& record);
  static std::string Line(const RequestRecord& record);

 private:
  struct Impl;
  explicit RequestLog(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moed
