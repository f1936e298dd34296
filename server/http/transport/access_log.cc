#include "server/http/transport/access_log.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "nlohmann/json.hpp"
#include "spdlog/async.h"
#include "spdlog/async_logger.h"
#include "spdlog/spdlog.h"

namespace moed::http {
namespace {

constexpr size_t kQueuedLines = 1024;
constexpr size_t kShownPathBytes = 128;

bool IsStrangersMistake(const AccessRecord& record) {
  return record.token.empty() && record.status / 100 == 4 && record.status != 409 && record.status != 429;
}

// Probes and scrapes come every few seconds and say nothing while they go well.
bool IsRoutine(const AccessRecord& record) {
  constexpr std::string_view kPaths[] = {"/healthz", "/readyz", "/metrics"};
  return record.status == 200 && std::ranges::find(kPaths, record.path) != std::end(kPaths);
}

}  // namespace

struct AccessLog::Impl {
  std::shared_ptr<spdlog::details::thread_pool> thread = std::make_shared<spdlog::details::thread_pool>(kQueuedLines, 1);
  std::shared_ptr<spdlog::async_logger> logger;
};

AccessLog::AccessLog(std::function<void(const AccessRecord&)> count) : count_(std::move(count)), impl_(std::make_unique<Impl>()) {
  const auto& sinks = spdlog::default_logger()->sinks();
  impl_->logger = std::make_shared<spdlog::async_logger>("access", sinks.begin(), sinks.end(), impl_->thread,
                                                         spdlog::async_overflow_policy::overrun_oldest);
  impl_->logger->flush_on(spdlog::level::info);
  impl_->logger->set_level(spdlog::default_logger()->level());
}

AccessLog::~AccessLog() = default;

void AccessLog::Write(const AccessRecord& record) {
  if (count_) count_(record);
  const auto level = IsRoutine(record) ? spdlog::level::debug : spdlog::level::info;
  if (!impl_->logger->should_log(level)) return;
  uint64_t left_out = 0;
  if (IsStrangersMistake(record)) {
    const std::optional<uint64_t> taken = refused_.Take();
    if (!taken) return;
    left_out = *taken;
  }
  impl_->logger->log(level, "access " + Line(record, left_out));
}

std::string AccessLog::Line(const AccessRecord& record, uint64_t left_out) {
  nlohmann::ordered_json line = {{"id", record.id},
                                 {"client", record.client},
                                 {"method", record.method},
                                 {"path", record.path.substr(0, kShownPathBytes)},
                                 {"status", record.status},
                                 {"request_bytes", record.request_bytes},
                                 {"reply_bytes", record.reply_bytes},
                                 {"first_byte_seconds", record.first_byte_seconds},
                                 {"seconds", record.seconds},
                                 {"gone", record.gone}};
  if (!record.token.empty()) line["token"] = record.token;
  if (!record.trace_id.empty()) line["trace_id"] = record.trace_id;
  if (left_out > 0) line["refusals_left_out"] = left_out;
  return line.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace moed::http
