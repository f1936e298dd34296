#include "core/model/spec_check.h"

#include <algorithm>
#include <cmath>

#include "core/base/status.h"
#include "core/kernels/kv_rows.h"
#include "core/model/family.h"

namespace moed {
namespace {

constexpr SpecInteger kIntegers[] = {
    {"layers", &ModelSpec::layers, 1, 4096},
    {"hidden", &ModelSpec::hidden, 1, 1 << 17},
    {"heads", &ModelSpec::heads, 1, 1024},
    {"kv_heads", &ModelSpec::kv_heads, 1, 1024},
    {"head_dim", &ModelSpec::head_dim, 2, kMostHeadDim},
    {"vocabulary", &ModelSpec::vocabulary, 1, 1 << 24},
    {"max_positions", &ModelSpec::max_positions, 1, 1 << 24},  // float32 counts exactly to 2^24
    {"experts", &ModelSpec::experts, 1, 1 << 14},
    {"top_k", &ModelSpec::top_k, 1, 1024},
    {"expert_ffn", &ModelSpec::expert_ffn, 1, 1 << 20},
    {"shared_ffn", &ModelSpec::shared_ffn, 0, 1 << 20},
    {"dense_ffn", &ModelSpec::dense_ffn, 0, 1 << 20},
};

constexpr SpecFlag kFlags[] = {
    {"tied_embeddings", &ModelSpec::tied_embeddings}, {"qkv_bias", &ModelSpec::qkv_bias},
    {"norm_topk_prob", &ModelSpec::norm_topk_prob},   {"shared_gate", &ModelSpec::shared_gate},
    {"router_bias", &ModelSpec::router_bias, true},
};

absl::Status CheckTokens(std::string_view name, const std::vector<TokenId>& tokens, int vocabulary) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].value() < 0 || tokens[i].value() >= vocabulary) {
      return InvalidArgument(name, " token ", tokens[i].value(), " lies outside the vocabulary of ", vocabulary);
    }
    if (i > 0 && tokens[i] <= tokens[i - 1]) return InvalidArgument(name, " tokens are not ascending");
  }
  return absl::OkStatus();
}

absl::Status CheckLayers(const ModelSpec& spec) {
  if (spec.moe.size() != static_cast<size_t>(spec.layers)) {
    return InvalidArgument("moe has ", spec.moe.size(), " entries for ", spec.layers, " layers");
  }
  const auto with_experts = std::count(spec.moe.begin(), spec.moe.end(), true);
  if (with_experts == 0) return InvalidArgument("no layer has experts");
  if ((with_experts < spec.layers) != (spec.dense_ffn > 0)) {
    return InvalidArgument("dense_ffn = ", spec.dense_ffn, " with ", spec.layers - with_experts, " layers without experts");
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const SpecInteger> SpecIntegers() { return kIntegers; }
std::span<const SpecFlag> SpecFlags() { return kFlags; }

absl::Status CheckSpec(const ModelSpec& spec) {
  MOED_RETURN_IF_ERROR(FamilyNamed(spec.family).status());
  for (const SpecInteger& field : kIntegers) {
    const int value = spec.*field.member;
    if (value < field.low || value > field.high) {
      return InvalidArgument(field.name, " = ", value, " is outside ", field.low, "..", field.high);
    }
  }
  if (spec.heads % spec.kv_heads != 0) {
    return InvalidArgument("heads = ", spec.heads, " is no multiple of kv_heads = ", spec.kv_heads);
  }
  if (spec.head_dim % 2 != 0) return InvalidArgument("head_dim = ", spec.head_dim, " is odd; rotary embeddings need pairs");
  if (spec.top_k > spec.experts) return InvalidArgument("top_k = ", spec.top_k, " exceeds experts = ", spec.experts);
  if (!(spec.rms_eps > 0 && spec.rms_eps < 1)) return InvalidArgument("rms_eps = ", spec.rms_eps, " is outside (0, 1)");
  if (!(spec.rope_theta >= 1 && spec.rope_theta <= 1e15)) {
    return InvalidArgument("rope_theta = ", spec.rope_theta, " is outside 1..1e15");
  }
  if (spec.shared_gate && spec.shared_ffn == 0) return InvalidArgument("shared_gate without a shared expert");
  if (spec.bos.size() > 1) return InvalidArgument("bos has ", spec.bos.size(), " tokens; at most one is allowed");
  MOED_RETURN_IF_ERROR(CheckTokens("bos", spec.bos, spec.vocabulary));
  MOED_RETURN_IF_ERROR(CheckTokens("eos", spec.eos, spec.vocabulary));
  return CheckLayers(spec);
}

}  // namespace moed
