#include "core/expert/memory_plan.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "core/base/buffer.h"
#include "core/base/byte_size.h"
#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr uint64_t kKvShare = 16;         // one part in so many of what the fixed parts leave, at least
constexpr uint64_t kCheckpointShare = 8;  // one part in so many of that

// What the request allows for keys and values.
struct KvBounds {
  uint64_t least_pages = 0;
  uint64_t most_pages = 0;
  uint64_t least_slots = 0;
  uint64_t most_slots = 0;   // of sequences
  uint64_t checkpoints = 0;  // slots for them at most
  uint64_t context = 0;      // no sequence is longer than this
  uint64_t least(const MemoryNeeds& needs) const { return least_pages * needs.kv_page + least_slots * needs.kv_slot; }
};

// Slots in half of `share`, and in `room` beside `pages` pages; and of checkpoints in an eighth of it.
uint64_t SlotsIn(const MemoryNeeds& needs, const KvBounds& kv, uint64_t share, uint64_t room, uint64_t pages) {
  if (needs.kv_slot == 0) return 0;
  const uint64_t beside = (room - std::min(room, pages * needs.kv_page)) / needs.kv_slot;
  const uint64_t sequences = std::clamp(std::min(share / 2 / needs.kv_slot, beside), kv.least_slots, kv.most_slots);
  return sequences + std::min({share / kCheckpointShare / needs.kv_slot, beside - std::min(beside, sequences), kv.checkpoints});
}

uint64_t PagesIn(const MemoryNeeds& needs, const KvBounds& kv, uint64_t bytes) {
  return needs.kv_page == 0 ? kv.most_pages : bytes / needs.kv_page;
}

// What a KV budget holds: so many pages and slots, no more and no fewer.
absl::Status BoundByBudget(const MemoryNeeds& needs, const MemoryRequest& request, KvBounds& kv) {
  const uint64_t budget = *request.kv_budget;
  const std::string beside = needs.kv_slot == 0 ? "" : StrCat(" and what a sequence holds beside them ", needs.kv_slot, " bytes");
  if (budget < needs.kv_page + needs.kv_slot) {
    return InvalidArgument("KV budget of ", budget, " bytes holds no page: one page of ", needs.page_tokens, " positions needs ",
                           needs.kv_page, " bytes", beside);
  }
  const uint64_t wanted_pages = request.max_context ? DivideUp(kv.context, needs.page_tokens) : 1;
  kv.least_slots = kv.most_slots = SlotsIn(needs, kv, budget, budget, wanted_pages);
  kv.checkpoints = 0;  // they are among those
  kv.least_pages = kv.most_pages = PagesIn(needs, kv, budget - kv.least_slots * needs.kv_slot);
  const uint64_t positions = kv.least_pages * needs.page_tokens;
  if (request.max_context && kv.context > positions) {
    return InvalidArgument("KV budget of ", budget, " bytes holds ", positions, " positions, less than the max context of ",
                           kv.context, "; that needs ", wanted_pages * needs.kv_page + needs.kv_slot, " bytes");
  }
  kv.context = std::min(kv.context, positions);
  return absl::OkStatus();
}

absl::StatusOr<KvBounds> BoundKv(const MemoryNeeds& needs, const MemoryRequest& request) {
  const uint64_t page_tokens = needs.page_tokens;
  if (request.max_running < 1) return InvalidArgument("max running ", request.max_running, ": allowed are 1 and more");
  if (request.max_context && (*request.max_context < 1 || *request.max_context > needs.model_context)) {
    return InvalidArgument("max context ", *request.max_context, ": allowed are 1 to ", needs.model_context,
                           ", the positions that the model was made for");
  }
  KvBounds bounds;
  bounds.context = request.max_context.value_or(needs.model_context);
  bounds.least_pages =
      DivideUp(request.max_context ? bounds.context : std::min<uint64_t>(kLeastPositions, bounds.context), page_tokens);
  bounds.most_pages = std::max(bounds.least_pages, DivideUp(bounds.context, page_tokens) * request.max_running);
  bounds.least_slots = needs.kv_slot == 0 ? 0 : 1;
  bounds.most_slots = needs.kv_slot == 0 ? 0 : request.max_running;
  bounds.checkpoints = needs.kv_slot == 0 ? 0 : request.checkpoints;
  if (request.kv_budget) MOED_RETURN_IF_ERROR(BoundByBudget(needs, request, bounds));
  return bounds;
}

// Of `left` bytes, where experts have use for `useful`.
uint64_t ShareOfKv(uint64_t left, uint64_t useful) { return std::max(left / kKvShare, left - std::min(left, useful)); }

// A plan's pages and slots: slots in half of `share`, and what `room` holds.
struct KvCounts {
  uint64_t pages = 0;
  uint64_t slots = 0;
  uint64_t bytes(const MemoryNeeds& needs) const { return pages * needs.kv_page + slots * needs.kv_slot; }
};

KvCounts CountKv(const MemoryNeeds& needs, const KvBounds& kv, uint64_t share, uint64_t room) {
  const uint64_t slots = SlotsIn(needs, kv, share, room, kv.least_pages);
  const uint64_t in_slots = slots * needs.kv_slot;
  const uint64_t share_pages = std::clamp(PagesIn(needs, kv, share - std::min(share, in_slots)), kv.least_pages, kv.most_pages);
  return {std::min({share_pages, PagesIn(needs, kv, room - in_slots), uint64_t{INT32_MAX}}), slots};
}

MemoryPart EmbeddingPart(const MemoryNeeds& needs, uint64_t bytes) {
  return {"embedding", bytes,
          StrCat("rows that were wanted last; ", FormatBytes(needs.embedding_in_store), " of it stay in the store")};
}

std::vector<MemoryPart> FixedParts(const MemoryNeeds& needs) {
  std::vector<MemoryPart> parts = {{"trunk", needs.trunk, "weights outside the experts"},
                                   {"scratch", needs.scratch, "activations and logits"},
                                   {"tokenizer", needs.tokenizer, ""},
                                   {"tables", needs.tables, "cache entries, store index, predictor"},
                                   {"queues", needs.queues, "requests and tokens on their way"}};
  if (needs.embedding > 0) parts.push_back(EmbeddingPart(needs, needs.embedding));
  if (needs.kv_spill > 0) parts.push_back({"kv spill", needs.kv_spill, "keys and values on their way to disk, where they are"});
  return parts;
}

uint64_t SumBytes(const std::vector<MemoryPart>& parts) {
  uint64_t sum = 0;
  for (const MemoryPart& part : parts) sum += part.bytes;
  return sum;
}

std::string Rows(const std::vector<MemoryPart>& parts) {
  std::string rows;
  for (const MemoryPart& part : parts) {
    rows += absl::StrFormat("  %-10s %12s", part.name, FormatBytes(part.bytes));
    if (!part.note.empty()) rows += "  " + part.note;
    rows += "\n";
  }
  return rows;
}

MemoryPart KvPart(const MemoryNeeds& needs, const MemoryRequest& request, uint64_t pages, uint64_t slots) {
  const auto count = [](uint64_t number, const char* of) { return StrCat(", ", number, of, number == 1 ? "" : "s"); };
  const uint64_t sequences = std::min<uint64_t>(slots, static_cast<uint64_t>(request.max_running)),
                 checkpoints = slots - sequences;
  return {"kv", pages * needs.kv_page + slots * needs.kv_slot,
          StrCat(pages * needs.page_tokens, " positions in ", pages, " pages",
                 slots == 0 ? "" : StrCat(count(sequences, " sequence"), " at once"),
                 checkpoints == 0 ? "" : count(checkpoints, " checkpoint"))};
}

std::string SomeExperts(const MemoryNeeds& needs, uint64_t bytes) {
  return StrCat(bytes / needs.record, " of ", needs.all_experts / needs.record, " experts");
}

MemoryPart CachePart(const MemoryNeeds& needs, int top_k, uint64_t bytes) {
  return {"cache", bytes,
          StrCat(SomeExperts(needs, bytes), "; a token uses ", top_k, " a layer",
                 needs.lent == 0 ? "" : StrCat("; long prompts borrow ", FormatBytes(needs.lent)))};
}

uint64_t LeastCache(const MemoryNeeds& needs) { return std::max(needs.least_cache, needs.record) + needs.lent; }

// `elsewhere`: bytes of experts that need not be in it.
uint64_t MostCache(const MemoryNeeds& needs, uint64_t elsewhere = 0) {
  const uint64_t most = needs.most_cache == 0 ? needs.all_experts : needs.most_cache;
  return std::max(most - std::min(most, elsewhere), LeastCache(needs));
}

absl::Status TooSmall(const char* kind, uint64_t budget, const std::vector<MemoryPart>& least) {
  const uint64_t smallest = SumBytes(least);
  return ResourceExhausted("a ", kind, " budget of ", budget, " bytes (", FormatBytes(budget),
                           ") is too small; at least needed are\n", Rows(least), "the smallest budget that works: ", smallest,
                           " bytes (", FormatBytes(smallest), ")");
}

// What remains for the cache, of which there is more than the least. `elsewhere` as MostCache has it.
MemoryPlan PlanOf(const MemoryNeeds& needs, const MemoryRequest& request, const KvBounds& bounds, const KvCounts& kv,
                  std::vector<MemoryPart> parts, uint64_t elsewhere = 0) {
  MemoryPlan plan{.budget = request.budget,
                  .planned_budget = request.budget,
                  .kv = kv.bytes(needs),
                  .kv_pages = static_cast<int>(kv.pages),
                  .kv_slots = static_cast<int>(kv.slots)};
  plan.max_context = static_cast<int>(std::min<uint64_t>(bounds.context, kv.pages * needs.page_tokens));
  plan.needs = needs;
  plan.top_k = request.top_k;
  plan.least_cache = LeastCache(needs);
  plan.most_cache = MostCache(needs, elsewhere);
  plan.cache = std::min(request.budget - SumBytes(parts), plan.most_cache);
  parts.push_back(CachePart(needs, request.top_k, plan.cache));
  plan.parts = std::move(parts);
  return plan;
}

// How a device is divided beside what is fixed there.
struct DeviceShares {
  KvCounts kv;
  uint64_t cache = 0;  // 0: it has no room for experts
  // What is on its way between the two memories is in both for so long.
  uint64_t elsewhere(const MemoryNeeds& needs) const { return cache - std::min(cache, needs.least_device_cache); }
};

DeviceShares ShareDevice(const MemoryNeeds& on_device, const KvBounds& bounds, uint64_t left, uint64_t share) {
  const KvCounts kv = CountKv(on_device, bounds, share, left);
  const uint64_t for_experts = std::min(left - kv.bytes(on_device), on_device.all_experts);
  const bool experts = on_device.least_device_cache > 0 && for_experts >= on_device.least_device_cache;
  if (!experts) return {CountKv(on_device, bounds, left, left), 0};
  return {kv, for_experts};
}

std::vector<MemoryPart> PartsBesideDevice(const MemoryNeeds& needs, const KvCounts& kv) {
  std::vector<MemoryPart> parts = FixedParts(needs);
  parts.push_back({"kv tables", kv.pages * needs.kv_page_tables + kv.slots * needs.kv_slot_tables, "of what the device holds"});
  return parts;
}

absl::StatusOr<MemoryPlan> PlanWithDevice(const MemoryNeeds& needs, const MemoryRequest& request) {
  MemoryNeeds on_device = needs;
  on_device.kv_page -= needs.kv_page_tables;
  on_device.kv_slot -= needs.kv_slot_tables;
  MOED_ASSIGN_OR_RETURN(const KvBounds bounds, BoundKv(on_device, request));
  std::vector<MemoryPart> device = {{"trunk", needs.device_trunk, "weights outside the experts"},
                                    {"scratch", needs.device_scratch, "activations"}};
  if (needs.device_embedding > 0) device.push_back(EmbeddingPart(needs, needs.device_embedding));
  const auto with_kv = [&](const KvCounts& kv) {
    std::vector<MemoryPart> parts = device;
    parts.push_back(KvPart(on_device, request, kv.pages, kv.slots));
    return parts;
  };
  const uint64_t budget = *request.device_budget, fixed = SumBytes(device);
  if (budget < fixed + bounds.least(on_device)) {
    return TooSmall("device", budget, with_kv({bounds.least_pages, bounds.least_slots}));
  }
  const uint64_t left = budget - fixed;
  DeviceShares shares = ShareDevice(on_device, bounds, left, ShareOfKv(left, needs.all_experts));
  std::vector<MemoryPart> parts = PartsBesideDevice(needs, shares.kv);
  if (request.budget < SumBytes(parts) + MostCache(needs, shares.elsewhere(needs))) {
    shares = ShareDevice(on_device, bounds, left, left / kKvShare);
    parts = PartsBesideDevice(needs, shares.kv);
  }
  if (request.budget < SumBytes(parts) + LeastCache(needs)) {
    parts.push_back(CachePart(needs, request.top_k, LeastCache(needs)));
    return TooSmall("memory", request.budget, parts);
  }
  MemoryPlan plan = PlanOf(on_device, request, bounds, shares.kv, std::move(parts), shares.elsewhere(needs));
  plan.device_budget = budget;
  plan.device_cache = shares.cache;
  plan.device_parts = with_kv(shares.kv);
  if (shares.cache > 0)
    plan.device_parts.push_back({"experts", shares.cache, StrCat(SomeExperts(needs, shares.cache), ", beside the cache's")});
  return plan;
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const MemoryNeeds& needs, const MemoryRequest& request) {
  MOED_CHECK(needs.kv_page + needs.kv_slot > 0 && needs.page_tokens > 0 && needs.record > 0 && needs.model_context > 0);
  if (request.device_budget) return PlanWithDevice(needs, request);
  MOED_ASSIGN_OR_RETURN(const KvBounds bounds, BoundKv(needs, request));
  std::vector<MemoryPart> parts = FixedParts(needs);
  const uint64_t fixed = SumBytes(parts);
  if (request.budget < fixed + bounds.least(needs) + LeastCache(needs)) {
    parts.push_back(KvPart(needs, request, bounds.least_pages, bounds.least_slots));
    parts.push_back(CachePart(needs, request.top_k, LeastCache(needs)));
    return TooSmall("memory", request.budget, parts);
  }
  // What is lent comes back without an expert that had to go for it.
  const uint64_t left = request.budget - fixed, share = ShareOfKv(left, MostCache(needs) + needs.lent);
  const KvCounts kv = CountKv(needs, bounds, share, left - LeastCache(needs));
  parts.push_back(KvPart(needs, request, kv.pages, kv.slots));
  return PlanOf(needs, request, bounds, kv, std::move(parts));
}

absl::StatusOr<MemoryPlan> ResizePlan(const MemoryPlan& plan, uint64_t budget) {
  MemoryPlan resized = plan;
  MemoryPart& cache = resized.parts.back();
  MOED_CHECK(cache.name == "cache");
  const uint64_t fixed = SumBytes(plan.parts) - plan.cache;
  if (budget < fixed + plan.least_cache) {
    cache = CachePart(plan.needs, plan.top_k, plan.least_cache);
    return TooSmall("memory", budget, resized.parts);
  }
  resized.budget = budget;
  const uint64_t tables = PageTableBytes(budget) - std::min(PageTableBytes(budget), PageTableBytes(plan.planned_budget));
  resized.cache = std::min(budget - fixed - tables, plan.most_cache);
  cache = CachePart(plan.needs, plan.top_k, resized.cache);
  return resized;
}

std::string MemoryPlan::Table() const {
  const auto table = [](const char* kind, uint64_t bytes, const std::vector<MemoryPart>& rows) {
    return StrCat(kind, " budget ", FormatBytes(bytes), "\n", Rows(rows),
                  absl::StrFormat("  %-10s %12s", "unused", FormatBytes(bytes - SumBytes(rows))));
  };
  const std::string host = table("memory", budget, parts);
  return device_parts.empty() ? host : StrCat(host, "\n", table("device", device_budget, device_parts));
}

}  // namespace moed
