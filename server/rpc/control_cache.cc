// The methods of ControlService that change the expert cache.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "server/rpc/control_replies.h"

namespace moed {
namespace {

absl::StatusOr<std::vector<ExpertKey>> ReadExperts(const google::protobuf::RepeatedPtrField<moe::v1::ExpertId>& ids,
                                                   const ExpertStats& experts, int experts_of_layer) {
  std::vector<ExpertKey> keys;
  absl::flat_hash_set<LayerId> layers;
  absl::flat_hash_set<ExpertKey> seen;
  for (const LayerStats& layer : experts.layers) layers.insert(layer.layer);
  for (int i = 0; i < ids.size(); ++i) {
    const ExpertKey key{LayerId(ids[i].layer()), ids[i].expert()};
    const bool layer = layers.contains(key.layer);
    if (!layer || key.expert < 0 || key.expert >= experts_of_layer) {
      return FieldError(
          StrCat("experts[", i, "]"), layer ? "expert " : "layer ", layer ? key.expert : key.layer.value(),
          layer ? StrCat(" is not in [0, ", experts_of_layer - 1, "]") : std::string(" has no experts to choose from"));
    }
    if (seen.insert(key).second) keys.push_back(key);
  }
  return keys;
}

template <class Response>
absl::StatusOr<Response> CountOf(const absl::StatusOr<size_t>& experts) {
  MOED_RETURN_IF_ERROR(experts.status());
  Response answer;
  answer.set_experts(*experts);
  return answer;
}

}  // namespace

grpc::ServerUnaryReactor* ControlService::ResizeMemory(Context* context, const Bytes* request, Bytes* response) {
  using Response = moe::v1::ResizeMemoryResponse;
  return ReplyLater<moe::v1::ResizeMemoryRequest, Response>(
      context, request, response, [&](const auto& asked, const auto& finish) -> absl::Status {
        MOED_ASSIGN_OR_RETURN(const auto model, Loaded());
        return model->cache->Resize(asked.memory_budget_bytes(), [model, finish](const absl::Status& resized) {
          if (!resized.ok()) return finish(resized);
          const MemoryPlan plan = model->cache->plan();
          const ExpertStats experts = model->expert_stats();
          Response answer;
          answer.set_memory_budget_bytes(plan.budget);
          answer.set_cache_capacity_bytes(experts.cache_capacity_bytes);
          answer.set_cache_bytes(experts.cache_bytes);
          FillMemory(plan.parts, *answer.mutable_memory());
          finish(answer);
        });
      });
}

grpc::ServerUnaryReactor* ControlService::PinExperts(Context* context, const Bytes* request, Bytes* response) {
  return Reply<moe::v1::PinExpertsRequest, moe::v1::PinExpertsResponse>(
      context, Scope::kControl, request, response, [&](const auto& asked, auto& out) { return ChangePins(asked, out); });
}

absl::Status ControlService::ChangePins(const moe::v1::PinExpertsRequest& request, moe::v1::PinExpertsResponse& out) const {
  if (request.all() && (!request.unpin() || request.experts_size() > 0)) {
    return FieldError("all", "is for unpin, without experts");
  }
  if (!request.all() && request.experts().empty()) return FieldError("experts", "empty: name at least one");
  MOED_ASSIGN_OR_RETURN(const auto model, Loaded());
  MOED_ASSIGN_OR_RETURN(const std::vector<ExpertKey> experts,
                        ReadExperts(request.experts(), model->expert_stats(), model->info.experts()));
  if (request.all()) {
    model->cache->UnpinAll();
  } else if (request.unpin()) {
    model->cache->Unpin(experts);
  } else {
    MOED_RETURN_IF_ERROR(model->cache->Pin(experts));
  }
  const ExpertStats stats = model->expert_stats();
  out.set_pinned(stats.anchors.records);
  out.set_pinned_bytes(stats.anchors.bytes);
  out.set_most_pinned_bytes(stats.anchors.most_bytes);
  out.set_waiting(stats.asked.waiting);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* ControlService::PrefetchExperts(Context* context, const Bytes* request, Bytes* response) {
  return Reply<moe::v1::PrefetchExpertsRequest, moe::v1::PrefetchExpertsResponse>(
      context, Scope::kControl, request, response, [&](const auto& asked, auto& out) { return Prefetch(asked, out); });
}

absl::Status ControlService::Prefetch(const moe::v1::PrefetchExpertsRequest& request,
                                      moe::v1::PrefetchExpertsResponse& out) const {
  if (request.hottest() < 0 || request.hottest() > kMaxHottest) {
    return FieldError("hottest", request.hottest(), " is not in [0, ", kMaxHottest, "]");
  }
  if (request.experts().empty() == (request.hottest() == 0))
    return FieldError("experts", "name some, or how many of the hottest");
  MOED_ASSIGN_OR_RETURN(const auto model, Loaded());
  MOED_ASSIGN_OR_RETURN(std::vector<ExpertKey> experts,
                        ReadExperts(request.experts(), model->expert_stats(), model->info.experts()));
  if (request.hottest() > 0) {
    for (const ExpertHeat& heat : model->hottest_experts(request.hottest())) {
      if (std::ranges::count(experts, heat.key.expert_key()) == 0) experts.push_back(heat.key.expert_key());
    }
  }
  MOED_ASSIGN_OR_RETURN(const size_t taken, model->cache->Prefetch(experts));
  out.set_taken(taken);
  out.set_waiting(model->expert_stats().asked.waiting);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* ControlService::SaveResidency(Context* context, const Bytes* request, Bytes* response) {
  using Response = moe::v1::SaveResidencyResponse;
  return ReplyLater<moe::v1::SaveResidencyRequest, Response>(
      context, request, response, [&](const auto&, const auto& finish) -> absl::Status {
        MOED_ASSIGN_OR_RETURN(const auto model, Loaded());
        return model->cache->SaveResidency([finish](const auto& experts) { finish(CountOf<Response>(experts)); });
      });
}

grpc::ServerUnaryReactor* ControlService::RestoreResidency(Context* context, const Bytes* request, Bytes* response) {
  using Response = moe::v1::RestoreResidencyResponse;
  return ReplyLater<moe::v1::RestoreResidencyRequest, Response>(
      context, request, response, [&](const auto&, const auto& finish) -> absl::Status {
        MOED_ASSIGN_OR_RETURN(const auto model, Loaded());
        return model->cache->RestoreResidency([finish](const auto& experts) { finish(CountOf<Response>(experts)); });
      });
}

}  // namespace moed
