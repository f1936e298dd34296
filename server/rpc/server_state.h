// What the daemon is able to do at this moment: without a model, ready, draining, refusing.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/base/byte_share.h"
#include "core/base/trace.h"
#include "core/chat/answer/answer_format.h"
#include "core/chat/model_template.h"
#include "core/engine/engine.h"
#include "core/engine/request_limits.h"
#include "core/expert/memory_plan.h"
#include "core/expert/stats.h"
#include "core/tokenizer/tokenizer.h"
#include "moe/v1/control.pb.h"
#include "server/rpc/cache_operations.h"
#include "server/wire/error_details.h"

namespace moed {

namespace grammar {
class MatcherPool;
}

struct InferenceLimits;

// What a call may hold, as the plan of the model allows.
struct CallLimits {
  RequestLimits request;
  size_t max_unsent_bytes = 64 << 10;            // of one stream, beside the ids of its prompt
  size_t max_answer_bytes = 1 << 20;             // of one answer in one message
  int64_t write_timeout_nanos = 30'000'000'000;  // of one message that the client does not take
};
inline constexpr CallLimits kLimitsWithoutModel;

// Everything that is there once the model is. Pointers and functions are thread-safe, and there for as long as the record is.
struct LoadedModel {
  CallLimits limits;
  std::shared_ptr<const InferenceLimits> messages;  // made from limits.request
  Engine* engine = nullptr;
  CacheOperations* cache = nullptr;
  const Tokenizer* tokenizer = nullptr;
  std::string_view without_conversations;             // "an encoder-decoder": what the model is, if it has none
  const chat::ModelTemplate* chat = nullptr;          // null: the store has no chat template
  const chat::AnswerFormat* answer_format = nullptr;  // with a chat template
  grammar::MatcherPool* formats = nullptr;
  ByteShare* tool_schemas = nullptr;  // names in tools of requests that have not ended
  std::function<ExpertStats()> expert_stats;
  std::function<std::vector<ExpertHeat>(int top)> hottest_experts;
  std::function<ExpertMap(uint64_t since)> expert_map;
  std::function<std::vector<TracePart>()> step_parts;
  std::function<void()> keep_residency;                  // has it written which experts are in memory, where that is wanted
  std::function<void()> keep_learned;                    // has what was learned written, likewise
  std::function<void(const absl::Status&)> device_lost;  // told of a request's error (IsLostDevice), does not block; may be empty
  moe::v1::ModelInfo info;                               // its expert_formats: [precision]

  // The plan, with what the cache really holds now.
  std::vector<MemoryPart> MemoryNow(const ExpertStats& experts) const {
    std::vector<MemoryPart> parts = cache->plan().parts;
    for (MemoryPart& part : parts) {
      if (part.name == "cache") part.bytes = experts.cache_bytes;
    }
    return parts;
  }
};

// Thread-safe. Without a model -> ready -> draining -> refusing, and back to ready where the drain is taken back; a drain may
// also come while there is no model. Who drains is not ready any more, so that whoever watches takes the server out; only who
// refuses turns new requests away.
class ServerState {
 public:
  // Who was given a model before keeps it alive.
  void SetLoaded(std::shared_ptr<const LoadedModel> model) {
    absl::MutexLock lock(&mutex_);
    loaded_ = std::move(model);
  }
  // Null while there is none.
  std::shared_ptr<const LoadedModel> loaded() const {
    absl::MutexLock lock(&mutex_);
    return loaded_;
  }
  // Takes the model out. `reason` is an UNAVAILABLE: what requests are told.
  void SetAbsent(absl::Status reason) {
    absl::MutexLock lock(&mutex_);
    loaded_ = nullptr;
    absent_ = std::move(reason);
  }
  // Why there is no model; OK: there is one.
  absl::Status CheckLoaded() const {
    absl::MutexLock lock(&mutex_);
    return loaded_ != nullptr ? absl::OkStatus() : absent_;
  }
  // Of the server as it is, and of the model that is loaded or being loaded.
  void SetServerInfo(moe::v1::ServerInfo info) {
    absl::MutexLock lock(&mutex_);
    info_ = std::move(info);
  }
  moe::v1::ServerInfo server_info() const {
    absl::MutexLock lock(&mutex_);
    return info_;
  }

  void CountLostDevice() { lost_devices_.fetch_add(1); }
  int lost_devices() const { return lost_devices_.load(); }

  void SetDraining() { draining_.store(true, std::memory_order_release); }
  bool draining() const { return draining_.load(std::memory_order_acquire); }
  void SetRefusing() { refusing_.store(true, std::memory_order_release); }  // of a server that drains
  void TakeBackDrain() {
    refusing_.store(false, std::memory_order_release);
    draining_.store(false, std::memory_order_release);
  }
  bool refusing() const { return refusing_.load(std::memory_order_acquire); }

  bool ready() const { return loaded() != nullptr && !draining(); }

 private:
  mutable absl::Mutex mutex_;
  std::shared_ptr<const LoadedModel> loaded_ ABSL_GUARDED_BY(mutex_);
  absl::Status absent_ ABSL_GUARDED_BY(mutex_) =
      WithRetryAfter(absl::UnavailableError("the server is starting: the model is not loaded yet"), 1);
  moe::v1::ServerInfo info_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> lost_devices_{0};
  std::atomic<bool> draining_{false};
  std::atomic<bool> refusing_{false};
};

}  // namespace moed
