// The memory budget as a contract: what gets how much, decided before anything is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace moed {

inline constexpr int kLeastPositions = 256;  // of keys and values, where the model has as many

// What the kernel's page tables take for so many bytes of memory: 8 for each page. Large pages save none of it. Those of the
// first GiB are among what a process has beside its budget.
constexpr uint64_t PageTableBytes(uint64_t bytes) { return bytes < (1 << 30) ? 0 : (bytes - (1 << 30)) / 512; }

// Needs in bytes, measured from store and options before allocation.
struct MemoryNeeds {
  uint64_t trunk = 0;               // in memory
  uint64_t embedding = 0;           // in place of one that stays in the store; 0: it is in the trunk
  uint64_t embedding_in_store = 0;  // what of it is not in memory
  uint64_t tokenizer = 0;
  uint64_t scratch = 0;   // activations, logits, attention scores, prefill chunk
  uint64_t tables = 0;    // cache entries, store index, predictor
  uint64_t queues = 0;    // bounded queues of requests and tokens
  uint64_t kv_spill = 0;  // what of keys and values on disk is in memory; 0: none are
  uint64_t kv_page = 0;   // one page, all layers that see all positions; 0: no layer does
  uint64_t kv_slot = 0;   // what a sequence holds beside its pages, however long it is; 0: nothing
  int page_tokens = 0;
  uint64_t record = 0;       // the largest expert record
  uint64_t all_experts = 0;  // every record: more cache than this is useless
  uint64_t least_cache = 0;  // 0: one record
  uint64_t most_cache = 0;   // 0: all experts
  uint64_t lent = 0;         // of the cache, to the activations of large steps; comes on top of the least
  int model_context = 0;     // positions the model was made for
  // With a device budget: what the device has beside keys and values (trunk and scratch above are then what the host has of
  // them), and what the host has of each page and slot, which kv_page and kv_slot count.
  uint64_t device_trunk = 0;
  uint64_t device_embedding = 0;
  uint64_t device_scratch = 0;
  uint64_t least_device_cache = 0;  // less room for experts than this is none; 0: the device keeps none
  uint64_t kv_page_tables = 0;
  uint64_t kv_slot_tables = 0;
};

struct MemoryRequest {
  uint64_t budget = 0;
  // --device-budget, of a device with memory of its own. Keys and values are then out of that.
  std::optional<uint64_t> device_budget;
  std::optional<uint64_t> kv_budget;  // --kv-budget
  std::optional<int> max_context;     // --max-context
  int top_k = 1;
  int max_running = 1;
  int checkpoints = 0;  // slots beside those of sequences, at most (core/engine/checkpoints.h)
};

struct MemoryPart {
  std::string name;  // "trunk", "embedding", "kv", "cache", "scratch", "tokenizer", "tables", "queues", "kv spill"
  uint64_t bytes = 0;
  std::string note;  // "256 positions in 16 pages"
};

struct MemoryPlan {
  uint64_t budget = 0;
  uint64_t planned_budget = 0;  // PlanMemory's, whose page tables are in a part; those of a larger one are off the cache
  uint64_t kv = 0;              // whole pages and slots
  int kv_pages = 0;
  int kv_slots = 0;               // of sequences that hold memory at once, and for checkpoints; 0: sequences need no slots
  int max_context = 0;            // <= kv_pages * page_tokens
  uint64_t cache = 0;             // the rest
  std::vector<MemoryPart> parts;  // sums to <= budget
  uint64_t device_budget = 0;
  uint64_t device_cache = 0;             // for experts that are not in `cache`
  std::vector<MemoryPart> device_parts;  // sums to <= device_budget; none without one
  // What it takes to give the cache another size.
  MemoryNeeds needs;
  int top_k = 0;
  uint64_t least_cache = 0;
  uint64_t most_cache = 0;

  std::string Table() const;  // for the log
};

// Defaults: KV gets a sixteenth of what the fixed parts leave, or all that experts have no use for where that is more; at least
// kLeastPositions (or the model's context if smaller), at most max_running whole contexts; max_context = what the KV holds, at
// most the model's. Where sequences need slots these get up to half of that share, at least one slot, at most max_running; those
// of checkpoints up to an eighth. The cache gets the rest. A device with memory of its own is shared out by the same rule, its
// experts being those that the host's cache need not hold, as long as that holds all that are of use beside what KV takes there;
// where it has no room for experts KV gets all that trunk and scratch leave, as far as it is of use. RESOURCE_EXHAUSTED with a
// table of what needs how much and the smallest budget of its kind that works; INVALID_ARGUMENT for contradictions (max_context
// beyond the model's, KV too small for max_context).
absl::StatusOr<MemoryPlan> PlanMemory(const MemoryNeeds& needs, const MemoryRequest& request);

// The same plan in another budget: its cache alone grows or shrinks, grows less the page tables of what was added.
// RESOURCE_EXHAUSTED as PlanMemory, with what all else takes.
absl::StatusOr<MemoryPlan> ResizePlan(const MemoryPlan& plan, uint64_t budget);

}  // namespace moed
