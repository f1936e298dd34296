#include "server/rpc/request_log.h"

#include <optional>
#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status.h"
#include "nlohmann/json.hpp"
#include "server/rpc/session_digest.h"
#include "server/wire/error_details.h"
#include "spdlog/async.h"
#include "spdlog/async_logger.h"
#include "spdlog/sinks/basic_file_sink.h"
#include "spdlog/sinks/dist_sink.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

constexpr size_t kQueuedLines = 1024;
constexpr char kTimeForm[] = "%Y-%m-%dT%H:%M:%E3SZ";

// Errors name the session for its client, in quotes.
std::string ErrorText(const RequestRecord& record) {
  if (record.session_id.empty()) return std::string(record.status.message());
  return absl::StrReplaceAll(record.status.message(),
                             {{StrCat("\"", record.session_id, "\""), SessionDigest(record.session_id)}});
}

}  // namespace

struct RequestLog::Impl {
  std::string path;                                   // of lines that stand alone
  std::shared_ptr<spdlog::sinks::dist_sink_mt> file;  // likewise
  std::shared_ptr<spdlog::details::thread_pool> thread = std::make_shared<spdlog::details::thread_pool>(kQueuedLines, 1);
  std::shared_ptr<spdlog::async_logger> logger;  // null: off

  absl::Status OpenFile() const {
    try {
      auto opened = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
      opened->set_pattern("%v");
      file->set_sinks({std::move(opened)});
    } catch (const spdlog::spdlog_ex& error) {
      return InvalidArgument("--request-log ", path, ": ", error.what());
    }
    return absl::OkStatus();
  }
};

RequestLog::RequestLog(std::unique_ptr<Impl> impl, const Clock& clock) : impl_(std::move(impl)), refused_(clock) {}
RequestLog::~RequestLog() = default;

absl::StatusOr<std::unique_ptr<RequestLog>> RequestLog::Open(const std::string& path, const Clock& clock) {
  auto impl = std::make_unique<Impl>();
  if (path == kNoRequestLog) return std::unique_ptr<RequestLog>(new RequestLog(std::move(impl), clock));
  std::vector<spdlog::sink_ptr> sinks = spdlog::default_logger()->sinks();
  if (!path.empty()) {
    impl->path = path;
    impl->file = std::make_shared<spdlog::sinks::dist_sink_mt>();
    MOED_RETURN_IF_ERROR(impl->OpenFile());
    sinks = {impl->file};
  }
  impl->logger = std::make_shared<spdlog::async_logger>("request", sinks.begin(), sinks.end(), impl->thread,
                                                        spdlog::async_overflow_policy::overrun_oldest);
  impl->logger->flush_on(spdlog::level::info);
  return std::unique_ptr<RequestLog>(new RequestLog(std::move(impl), clock));
}

absl::Status RequestLog::Reopen() { return stands_alone() ? impl_->OpenFile() : absl::OkStatus(); }

bool RequestLog::stands_alone() const { return impl_->file != nullptr; }

void RequestLog::Write(const RequestRecord& record) {
  if (impl_->logger == nullptr) return;
  if (!stands_alone() && !spdlog::default_logger_raw()->should_log(spdlog::level::info)) return;
  uint64_t left_out = 0;
  if (absl::IsUnauthenticated(record.status)) {
    const std::optional<uint64_t> taken = refused_.Take();
    if (!taken) return;
    left_out = *taken;
  }
  impl_->logger->info(stands_alone() ? Line(record, absl::FormatTime(kTimeForm, absl::Now(), absl::UTCTimeZone()), left_out)
                                     : "request " + Line(record, "", left_out));
}

std::string RequestLog::Line(const RequestRecord& record, std::string_view time, uint64_t left_out) {
  nlohmann::ordered_json line;
  if (!time.empty()) line["time"] = time;
  line["id"] = record.id;
  line["peer"] = record.caller.peer;
  if (!record.caller.token.empty()) line["token"] = record.caller.token;
  if (!record.caller.trace_id.empty()) line["trace_id"] = record.caller.trace_id;
  line["method"] = MethodName(record.method);
  line["code"] = CodeName(record.status.code());
  if (!record.session_id.empty()) line["session"] = SessionDigest(record.session_id);
  if (!record.status.ok()) line["error"] = ErrorText(record);
  line["duration_seconds"] = record.duration_seconds;
  if (left_out > 0) line["refusals_left_out"] = left_out;
  if (record.admitted) {
    const FinishFigures& finish = record.finish;
    if (record.method != Method::kScore) line["reason"] = EndReasonName(record.reason);
    line["prompt_tokens"] = finish.prompt_tokens;
    line["cached_tokens"] = finish.cached_tokens;
    line["completion_tokens"] = finish.completion_tokens;
    line["queue_seconds"] = finish.timings.queue_seconds;
    line["prefill_seconds"] = finish.timings.prefill_seconds;
    line["decode_seconds"] = finish.timings.decode_seconds;
    line["ttft_seconds"] = finish.timings.ttft_seconds;
    line["expert_hits"] = finish.expert_hits;
    line["expert_misses"] = finish.expert_misses;
    line["bytes_read"] = finish.bytes_read;
    line["stall_seconds"] = finish.stall_seconds;
    line["preemptions"] = finish.preemptions;
    line["experts_lowered"] = finish.experts_lowered;
    line["experts_skipped"] = finish.experts_skipped;
    line["experts_masked"] = finish.experts_masked;
    line["gate_mass_lost"] = finish.gate_mass_lost;
    line["choices_dropped"] = finish.choices_dropped;
    line["fast_matmul_tokens"] = finish.fast_matmul_tokens;
    line["lossy_cached_tokens"] = finish.lossy_cached_tokens;
  }
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace moed
