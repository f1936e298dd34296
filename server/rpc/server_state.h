// What the daemon is able to do at this moment: loading, ready, draining, refusing.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "core/base/trace.h"
#include "core/chat/answer/answer_format.h"
#include "core/chat/model_template.h"
#include "core/engine/engine.h"
#include "core/expert/memory_plan.h"
#include "core/expert/stats.h"
#include "core/tokenizer/tokenizer.h"
#include "moe/v1/control.pb.h"
#include "server/rpc/cache_operations.h"

namespace moed {

namespace grammar {
class MatcherPool;
}

// Everything that is there once the model is. Pointers and functions are thread-safe and outlive every server.
struct LoadedModel {
  Engine* engine = nullptr;
  CacheOperations* cache = nullptr;
  const Tokenizer* tokenizer = nullptr;
  std::string_view without_conversations;             // "an encoder-decoder": what the model is, if it has none
  const chat::ModelTemplate* chat = nullptr;          // null: the store has no chat template
  const chat::AnswerFormat* answer_format = nullptr;  // with a chat template
  grammar::MatcherPool* formats = nullptr;
  std::function<ExpertStats()> expert_stats;
  std::function<std::vector<ExpertHeat>(int top)> hottest_experts;
  std::function<ExpertMap(uint64_t since)> expert_map;
  std::function<std::vector<TracePart>()> step_parts;
  std::vector<std::string> expert_formats;  // [precision]
  std::vector<MemoryPart> memory;           // as planned, "cache" included
  moe::v1::ModelInfo info;
  moe::v1::ServerInfo backends;  // compute_backend, io_backend and io_backend_reason only

  // The plan, with what the cache really holds now.
  std::vector<MemoryPart> MemoryNow(const ExpertStats& experts) const {
    std::vector<MemoryPart> parts = memory;
    for (MemoryPart& part : parts) {
      if (part.name == "cache") part.bytes = experts.cache_bytes;
    }
    return parts;
  }
};

// Thread-safe. Loading -> ready -> draining -> refusing, and back to ready where the drain is taken back; a drain may also come
// while loading. Who drains is not ready any more,
// so that whoever watches takes the server out; only who refuses turns new requests away.
class ServerState {
 public:
  // Once. `model` must outlive the state.
  void SetLoaded(const LoadedModel& model) { loaded_.store(&model, std::memory_order_release); }
  const LoadedModel* loaded() const { return loaded_.load(std::memory_order_acquire); }  // null while loading

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
  std::atomic<const LoadedModel*> loaded_{nullptr};
  std::atomic<bool> draining_{false};
  std::atomic<bool> refusing_{false};
};

}  // namespace moed
