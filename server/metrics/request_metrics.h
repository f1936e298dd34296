// Counters and histograms of calls, as cached Prometheus children.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/engine/engine.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace moed {

enum class Method : uint8_t {
  kGenerate,
  kGenerateStream,
  kChat,
  kChatStream,
  kCountTokens,
  kScore,
  kTokenize,
  kDetokenize,
  kDeleteSession
};
inline constexpr int kMethods = 9;
std::string_view MethodName(Method method);

// How an admitted generation ended.
enum class EndReason : uint8_t { kStop, kStopString, kLength, kTimeLimit, kContext, kCancelled, kDeadline, kSlowClient, kError };
inline constexpr int kEndReasons = 9;
std::string_view EndReasonName(EndReason reason);
EndReason EndReasonOf(const FinishInfo& finish);  // slow clients aside, which the engine cannot know

// Why a call was not admitted.
enum class Rejection : uint8_t { kQueueFull, kTenantLimit, kTooLarge, kNotReady, kDraining };
inline constexpr int kRejections = 5;

// Thread-safe; the registry must outlive it. Everything is exported as zero from the start.
class RequestMetrics {
 public:
  explicit RequestMetrics(prometheus::Registry& registry);

  void CountEnd(Method method, absl::StatusCode code);  // every call, once
  void CountRejected(Rejection rejection);
  void ObserveFinish(EndReason reason, const FinishInfo& finish);  // admitted generations, once
  // `seconds` since the token before, which that many came after: so many between consecutive ones.
  void ObserveInterToken(double seconds, size_t tokens) {
    for (size_t i = 0; i < tokens; ++i) inter_token_->Observe(seconds / static_cast<double>(tokens));
  }
  void ObserveCancelToIdle(double seconds) { cancel_to_idle_->Observe(seconds); }

  struct Totals {
    uint64_t requests = 0;
    double tpot_sum_seconds = 0;
    uint64_t tpot_count = 0;
  };
  Totals totals() const;

 private:
  static constexpr int kCodes = 17;
  std::array<std::array<prometheus::Counter*, kCodes>, kMethods> ended_{};
  std::array<prometheus::Counter*, kEndReasons> finished_{};
  std::array<prometheus::Counter*, kRejections> rejected_{};
  prometheus::Histogram* time_to_first_token_;
  prometheus::Histogram* time_per_output_token_;
  prometheus::Histogram* inter_token_;
  prometheus::Histogram* duration_;
  prometheus::Histogram* queue_;
  prometheus::Histogram* prefill_;
  prometheus::Histogram* decode_;
  prometheus::Histogram* cancel_to_idle_;

  mutable absl::Mutex mutex_;
  Totals totals_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moed
