#include "core/model/spec_check.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/functional/function_ref.h"
#include "core/base/status.h"
#include "core/kernels/kv_rows.h"
#include "core/kernels/recurrence.h"
#include "core/model/attention_check.h"
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
    {"rotary_dims", &ModelSpec::rotary_dims, 0, kMostHeadDim, 0},
    {"short_context", &ModelSpec::short_context, 0, 1 << 24, 0},
    {"rotated_pairs", &ModelSpec::rotated_pairs, 0, kMostHeadDim / 2, 0},
    {"router_groups", &ModelSpec::router_groups, 1, kMostGroups, 1},
    {"router_kept_groups", &ModelSpec::router_kept_groups, 1, kMostGroups, 1},
};

constexpr SpecFlag kFlags[] = {
    {"tied_embeddings", &ModelSpec::tied_embeddings},
    {"qkv_bias", &ModelSpec::qkv_bias},
    {"norm_topk_prob", &ModelSpec::norm_topk_prob},
    {"shared_gate", &ModelSpec::shared_gate},
    {"router_bias", &ModelSpec::router_bias, true},
    {"o_bias", &ModelSpec::o_bias, true},
    {"attention_sinks", &ModelSpec::attention_sinks, true},
    {"expert_bias", &ModelSpec::expert_bias, true},
    {"rope_interleaved", &ModelSpec::rope_interleaved, true},
    {"router_correction", &ModelSpec::router_correction, true},
    {"qk_norm_after_rope", &ModelSpec::qk_norm_after_rope, true},
    {"layer_norm", &ModelSpec::layer_norm, true},
    {"head_bias", &ModelSpec::head_bias, true},
    {"attention_gate", &ModelSpec::attention_gate, true},
    {"unrotated", &ModelSpec::unrotated, true},
    {"value_norm", &ModelSpec::value_norm, true},
    {"layer_scale", &ModelSpec::layer_scale, true},
    {"expert_scales", &ModelSpec::expert_scales, true},
    {"parallel", &ModelSpec::parallel, true},
};

constexpr SpecNumber kNumbers[] = {
    {"attention_scale", &ModelSpec::attention_scale, 0, 1e3, 0},
    {"embedding_scale", &ModelSpec::embedding_scale, 1e-6, 1e6, 1},
    {"logits_scale", &ModelSpec::logits_scale, 1e-6, 1e6, 1},
    {"residual_scale", &ModelSpec::residual_scale, 1e-6, 1e6, 1},
    {"router_epsilon", &ModelSpec::router_epsilon, 0, 1, 0},
    {"router_jitter", &ModelSpec::router_jitter, 0, 1, 0},
    {"router_scale", &ModelSpec::router_scale, 1e-3, 1e3, 1},
    {"router_logits_scale", &ModelSpec::router_logits_scale, 1e-6, 1e6, 1},
    {"logits_cap", &ModelSpec::logits_cap, 0, 1e6, 0},
    {"shared_scale", &ModelSpec::shared_scale, 1e-3, 1e3, 1},
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

// The blocks that have these norms are attention over keys and values, and the experts with the shared one.
absl::Status CheckNorms(const ModelSpec& spec) {
  const bool behind = spec.NormsBehind();
  if ((behind || spec.norms == ModelSpec::Norms::kBoth) && (spec.latent || !spec.recurrent.empty() || spec.layer_norm)) {
    return InvalidArgument("norms = behind or both with latent attention, layer_norm or recurrent layers");
  }
  if (behind && (spec.dense_ffn > 0 || spec.shared_ffn > 0)) {
    return InvalidArgument("norms = behind with a shared expert or dense layers");
  }
  if (spec.parallel && (spec.norms != ModelSpec::Norms::kBefore || !spec.mixers.empty())) {
    return InvalidArgument("parallel with norms that stand not before alone, or with mixers");
  }
  if (spec.shared_scale != 1 && spec.NormsAround()) return InvalidArgument("shared_scale with norms = around");
  if (!spec.NormsAround()) return absl::OkStatus();
  if (spec.latent || !spec.recurrent.empty() || spec.layer_norm || spec.shared_gate || spec.dense_ffn > 0) {
    return InvalidArgument("norms = around with latent attention, layer_norm, shared_gate, recurrent or dense layers");
  }
  return absl::OkStatus();
}

absl::Status CheckShapeNumber(std::string_view name, int value, int low, int high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument(name, " = ", value, " is outside ", low, "..", high);
}

absl::Status CheckDeltaNet(const DeltaNetShape& shape) {
  MOED_RETURN_IF_ERROR(CheckShapeNumber("delta_net.key_heads", shape.key_heads, 1, 1024));
  MOED_RETURN_IF_ERROR(CheckShapeNumber("delta_net.value_heads", shape.value_heads, 1, 1024));
  MOED_RETURN_IF_ERROR(CheckShapeNumber("delta_net.key_dim", shape.key_dim, 1, 1024));
  MOED_RETURN_IF_ERROR(CheckShapeNumber("delta_net.value_dim", shape.value_dim, 1, 1024));
  MOED_RETURN_IF_ERROR(CheckShapeNumber("delta_net.taps", shape.taps, 2, kMostTaps));
  MOED_RETURN_IF_ERROR(CheckShapeNumber("delta_net.gate_rank", shape.gate_rank, 0, 1 << 17));
  if (shape.value_heads % shape.key_heads == 0) return absl::OkStatus();
  return InvalidArgument("delta_net.value_heads = ", shape.value_heads, " is no multiple of key_heads = ", shape.key_heads);
}

absl::Status CheckMamba2(const Mamba2Shape& shape) {
  MOED_RETURN_IF_ERROR(CheckShapeNumber("mamba2.heads", shape.heads, 1, 1024));
  MOED_RETURN_IF_ERROR(CheckShapeNumber("mamba2.head_dim", shape.head_dim, 1, 1024));
  MOED_RETURN_IF_ERROR(CheckShapeNumber("mamba2.groups", shape.groups, 1, 1024));
  MOED_RETURN_IF_ERROR(CheckShapeNumber("mamba2.state_dim", shape.state_dim, 1, 1024));
  MOED_RETURN_IF_ERROR(CheckShapeNumber("mamba2.taps", shape.taps, 2, kMostTaps));
  if (shape.heads % shape.groups == 0) return absl::OkStatus();
  return InvalidArgument("mamba2.heads = ", shape.heads, " is no multiple of groups = ", shape.groups);
}

absl::Status CheckMixers(const ModelSpec& spec) {
  if (spec.mixers.empty()) return absl::OkStatus();
  if (spec.norms != ModelSpec::Norms::kBefore) return InvalidArgument("norms that stand not before alone, with mixers");
  if (spec.mixers.size() == static_cast<size_t>(spec.layers)) return absl::OkStatus();
  return InvalidArgument("mixers has ", spec.mixers.size(), " entries for ", spec.layers, " layers");
}

// Heads without rotation and all that other families have beside them, in layers of one kind.
bool HasPlainHeads(const ModelSpec& spec) {
  return spec.unrotated && !spec.latent && !spec.qkv_bias && !spec.o_bias && !spec.attention_sinks && !spec.attention_gate &&
         spec.windows.empty() && spec.rotations.empty() && spec.recurrent.empty() && spec.mixers.empty() && !spec.value_norm &&
         !spec.values_are_keys && !spec.layer_norm && !spec.layer_scale && spec.qk_norm == ModelSpec::QkNorm::kNone &&
         spec.norms == ModelSpec::Norms::kBefore && !spec.parallel && !spec.temperature && spec.residual_scale == 1 &&
         spec.kv_heads == spec.heads;
}

// One expert by a softmax.
bool HasPlainExperts(const ModelSpec& spec) {
  return spec.top_k == 1 && spec.router_scoring == RouterScoring::kSoftmax && spec.shared_ffn == 0 && !spec.expert_bias &&
         !spec.expert_scales && !spec.router_correction && spec.router_groups == 1 && !spec.weighs_inputs && !spec.RoutesEarly();
}

absl::Status CheckPrefix(const ModelSpec& spec) {
  if (!spec.prefix) return absl::OkStatus();
  MOED_RETURN_IF_ERROR(CheckShapeNumber("prefix.separator", spec.prefix->separator, 0, spec.vocabulary - 1));
  MOED_RETURN_IF_ERROR(CheckShapeNumber("prefix.expert_capacity", spec.prefix->expert_capacity, 1, INT32_MAX));
  if (spec.heads * spec.head_dim != spec.hidden) {
    return InvalidArgument("a prefix-LM with heads = ", spec.heads, " of head_dim = ", spec.head_dim,
                           " and hidden = ", spec.hidden, ", which they divide");
  }
  if (spec.encoder || !HasPlainHeads(spec) || !HasPlainExperts(spec) || spec.activation != Activation::kRelu ||
      !spec.tied_embeddings || !spec.head_bias || spec.embedding_scale != 1) {
    return InvalidArgument("a prefix-LM with heads, norms, experts or layers of another kind than GPTSAN's");
  }
  if (std::ranges::is_sorted(spec.moe, std::greater())) return absl::OkStatus();
  return InvalidArgument("a prefix-LM with layers with experts behind layers without them");
}

// What its blocks have: plain heads and feed-forward blocks, and a router that chooses one expert by softmax.
absl::Status CheckEncoder(const ModelSpec& spec) {
  if (!spec.encoder) return absl::OkStatus();
  const EncoderShape& encoder = *spec.encoder;
  MOED_RETURN_IF_ERROR(CheckShapeNumber("encoder.layers", encoder.layers, 1, spec.layers - 1));
  MOED_RETURN_IF_ERROR(CheckShapeNumber("encoder.position_buckets", encoder.position_buckets, 4, 1 << 12));
  const int least = encoder.position_buckets / 2 + 1;
  MOED_RETURN_IF_ERROR(CheckShapeNumber("encoder.most_distance", encoder.most_distance, least, 1 << 14));
  MOED_RETURN_IF_ERROR(CheckShapeNumber("encoder.expert_capacity", encoder.expert_capacity, 0, INT32_MAX));
  MOED_RETURN_IF_ERROR(CheckShapeNumber("encoder.start", encoder.start, 0, spec.vocabulary - 1));
  if (!HasPlainHeads(spec)) {
    return InvalidArgument("an encoder with heads, norms or layers of another kind than the plain ones");
  }
  if (HasPlainExperts(spec)) return absl::OkStatus();
  return InvalidArgument("an encoder with top_k = ", spec.top_k,
                         ", a shared expert or another router than a softmax; it has 1 expert");
}

int CountLayers(const ModelSpec& spec, absl::FunctionRef<bool(LayerId)> are) {
  int count = 0;
  for (int layer = 0; layer < spec.layers; ++layer) count += are(LayerId(layer));
  return count;
}

absl::Status CheckRecurrence(const ModelSpec& spec) {
  const int kinds = int{spec.delta_net.has_value()} + int{spec.mamba2.has_value()} + int{spec.short_convolution.has_value()};
  if (kinds != (spec.recurrent.empty() ? 0 : 1)) {
    return InvalidArgument("recurrent layers are of one kind of delta_net, mamba2 and short_convolution; here of ", kinds);
  }
  if (kinds == 0) return absl::OkStatus();
  if (spec.delta_net) MOED_RETURN_IF_ERROR(CheckDeltaNet(*spec.delta_net));
  if (spec.mamba2) MOED_RETURN_IF_ERROR(CheckMamba2(*spec.mamba2));
  if (spec.short_convolution) {
    MOED_RETURN_IF_ERROR(CheckShapeNumber("short_convolution.taps", spec.short_convolution->taps, 2, kMostTaps));
  }
  if (spec.recurrent.size() != static_cast<size_t>(spec.layers)) {
    return InvalidArgument("recurrent has ", spec.recurrent.size(), " entries for ", spec.layers, " layers");
  }
  const auto recurrent = std::count(spec.recurrent.begin(), spec.recurrent.end(), true);
  const auto attend = CountLayers(spec, [&](LayerId layer) { return spec.HasAttention(layer); });
  if (recurrent == 0 || attend == 0) {
    return InvalidArgument(recurrent, " of ", spec.layers, " layers are recurrent and ", attend,
                           " have attention; some must be, and some have attention");
  }
  return absl::OkStatus();
}

absl::Status CheckActivation(const ModelSpec& spec) {
  if (!spec.gated() && spec.expert_bias) return InvalidArgument("expert_bias without gates");
  if (!spec.swiglu_limits) return absl::OkStatus();
  if (spec.activation != Activation::kSilu) return InvalidArgument("swiglu_limits with another activation than silu");
  const auto [alpha, limit] = *spec.swiglu_limits;
  if (!(alpha > 0 && alpha <= 1e3)) return InvalidArgument("swiglu_limits.alpha = ", alpha, " is outside (0, 1000]");
  if (!(limit > 0 && limit <= 1e6)) return InvalidArgument("swiglu_limits.limit = ", limit, " is outside (0, 1e6]");
  return absl::OkStatus();
}

absl::Status CheckLayers(const ModelSpec& spec) {
  if (spec.moe.size() != static_cast<size_t>(spec.layers)) {
    return InvalidArgument("moe has ", spec.moe.size(), " entries for ", spec.layers, " layers");
  }
  const auto with_experts = std::count(spec.moe.begin(), spec.moe.end(), true);
  if (with_experts == 0) return InvalidArgument("no layer has experts");
  for (int layer = 0; layer < spec.layers; ++layer) {
    const LayerId id(layer);
    if (!spec.HasFfn(id) && spec.moe[layer]) return InvalidArgument("layer ", layer, " is a mixer and has experts");
    if (!spec.HasMixer(id) && spec.IsRecurrent(id)) return InvalidArgument("layer ", layer, " is recurrent and no mixer");
  }
  const auto dense = CountLayers(spec, [&](LayerId layer) { return spec.HasFfn(layer) && !spec.moe[layer.value()]; });
  if ((dense > 0) != (spec.dense_ffn > 0)) {
    return InvalidArgument("dense_ffn = ", spec.dense_ffn, " with ", dense, " layers without experts");
  }
  return absl::OkStatus();
}

absl::Status CheckRouter(const ModelSpec& spec) {
  if (spec.top_k > spec.experts) return InvalidArgument("top_k = ", spec.top_k, " exceeds experts = ", spec.experts);
  if (spec.experts % spec.router_groups != 0) {
    return InvalidArgument("experts = ", spec.experts, " is no multiple of router_groups = ", spec.router_groups);
  }
  if (spec.router_kept_groups > spec.router_groups ||
      int64_t{spec.router_kept_groups} * (spec.experts / spec.router_groups) < spec.top_k) {
    return InvalidArgument("router_kept_groups = ", spec.router_kept_groups, " of router_groups = ", spec.router_groups,
                           " with experts = ", spec.experts, " and top_k = ", spec.top_k);
  }
  if (spec.RoutesEarly() && (spec.shared_gate || spec.NormsAround() || !spec.mixers.empty())) {
    return InvalidArgument("router_input = layer with shared_gate, norms = around or mixers");
  }
  if (spec.weighs_inputs &&
      (spec.top_k != 1 || spec.expert_scales || spec.shared_gate || spec.norms != ModelSpec::Norms::kBefore)) {
    return InvalidArgument("weighs_inputs with top_k = ", spec.top_k,
                           ", expert_scales, shared_gate or norms elsewhere than before; one expert is chosen");
  }
  if (ChoosesByLogit(spec.router_scoring) && (spec.router_correction || spec.router_groups > 1)) {
    return InvalidArgument("router_scoring = sparsemixer or sigmoid_of_chosen with a correction or groups");
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const SpecInteger> SpecIntegers() { return kIntegers; }
std::span<const SpecFlag> SpecFlags() { return kFlags; }
std::span<const SpecNumber> SpecNumbers() { return kNumbers; }

absl::Status CheckSpec(const ModelSpec& spec) {
  MOED_RETURN_IF_ERROR(FamilyNamed(spec.family).status());
  for (const SpecInteger& field : kIntegers) {
    const int value = spec.*field.member;
    if (value < field.low || value > field.high) {
      return InvalidArgument(field.name, " = ", value, " is outside ", field.low, "..", field.high);
    }
  }
  for (const SpecNumber& field : kNumbers) {
    const double value = spec.*field.member;
    if (!(value >= field.low && value <= field.high)) {
      return InvalidArgument(field.name, " = ", value, " is outside ", field.low, "..", field.high);
    }
  }
  MOED_RETURN_IF_ERROR(CheckRouter(spec));
  if (!(spec.rms_eps > 0 && spec.rms_eps < 1)) return InvalidArgument("rms_eps = ", spec.rms_eps, " is outside (0, 1)");
  if (spec.shared_gate && spec.shared_ffn == 0) return InvalidArgument("shared_gate without a shared expert");
  if (spec.bos.size() > 1) return InvalidArgument("bos has ", spec.bos.size(), " tokens; at most one is allowed");
  MOED_RETURN_IF_ERROR(CheckTokens("bos", spec.bos, spec.vocabulary));
  MOED_RETURN_IF_ERROR(CheckTokens("eos", spec.eos, spec.vocabulary));
  MOED_RETURN_IF_ERROR(CheckAttention(spec));
  MOED_RETURN_IF_ERROR(CheckMixers(spec));
  MOED_RETURN_IF_ERROR(CheckRecurrence(spec));
  MOED_RETURN_IF_ERROR(CheckEncoder(spec));
  MOED_RETURN_IF_ERROR(CheckPrefix(spec));
  MOED_RETURN_IF_ERROR(CheckNorms(spec));
  MOED_RETURN_IF_ERROR(CheckActivation(spec));
  return CheckLayers(spec);
}

}  // namespace moed
