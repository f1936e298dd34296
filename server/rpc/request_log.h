// One line for each call that ended: id, peer, trace, timings, counts. Never text, and of a session its digest alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/engine/engine.h"
#include "server/metrics/request_metrics.h"
#include "server/wire/refused_lines.h"

namespace moed {

// As the transport says.
struct Caller {
  std::string peer;      // "ipv4:127.0.0.1:40000", "unix:"
  std::string token;     // the name of the token that was presented; "" = none is needed
  std::string trace_id;  // of the metadata's traceparent; "" = none that is valid
};

struct RequestRecord {
  std::string id;
  Caller caller;
  Method method = Method::kGenerate;
  absl::Status status;
  double duration_seconds = 0;  // from arrival to end
  std::string session_id;
  bool admitted = false;                // the rest is set
  EndReason reason = EndReason::kStop;  // of generations
  FinishFigures finish;
};

inline constexpr std::string_view kNoRequestLog = "off";

// Thread-safe. Never blocks: lines are written by a thread of its own, and when it falls behind the oldest are dropped. Of calls
// without a token that is known ten a second have a line; that of the next says how many had none.
class RequestLog {
 public:
  // JSON lines into `path`, or with the normal log when it is empty, or nowhere when it is kNoRequestLog. Errors name the path.
  static absl::StatusOr<std::unique_ptr<RequestLog>> Open(const std::string& path, const Clock& clock = Clock::Real());
  ~RequestLog();  // writes what is queued

  void Write(const RequestRecord& record);
  // Lines from now on go to the file that is at `path` then, which is made where there is none: the old one has been moved away.
  // Where that fails they go where they went before. Does nothing where they are in no file of their own.
  absl::Status Reopen();
  bool stands_alone() const;  // in a file of its own
  // `time`: as a line has it that stands alone; "" = it has none. `left_out`: refusals before it that have none.
  static std::string Line(const RequestRecord& record, std::string_view time = "", uint64_t left_out = 0);

 private:
  struct Impl;
  RequestLog(std::unique_ptr<Impl> impl, const Clock& clock);
  std::unique_ptr<Impl> impl_;
  RefusedLines refused_;
};

}  // namespace moed
