#include "core/model/spec_check.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/status.h"
#include "core/kernels/kv_rows.h"
#include "core/kernels/recurrence.h"
#include "core/model/family.h"
#include "core/quant/format.h"

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
};

constexpr SpecNumber kNumbers[] = {
    {"attention_scale", &ModelSpec::attention_scale, 0, 1e3, 0}, {"embedding_scale", &ModelSpec::embedding_scale, 1e-6, 1e6, 1},
    {"logits_scale", &ModelSpec::logits_scale, 1e-6, 1e6, 1},    {"residual_scale", &ModelSpec::residual_scale, 1e-6, 1e6, 1},
    {"router_epsilon", &ModelSpec::router_epsilon, 0, 1, 0},     {"router_jitter", &ModelSpec::router_jitter, 0, 1, 0},
    {"router_scale", &ModelSpec::router_scale, 1e-3, 1e3, 1},
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

absl::Status CheckYarn(const YarnScaling& yarn) {
  const auto check = [](std::string_view name, double value, double low, double high) {
    if (value >= low && value <= high) return absl::OkStatus();
    return InvalidArgument("yarn.", name, " = ", value, " is outside ", low, "..", high);
  };
  MOED_RETURN_IF_ERROR(check("factor", yarn.factor, 1, 1e6));
  MOED_RETURN_IF_ERROR(check("beta_fast", yarn.beta_fast, 1e-6, 1e6));
  MOED_RETURN_IF_ERROR(check("beta_slow", yarn.beta_slow, 1e-6, yarn.beta_fast));
  MOED_RETURN_IF_ERROR(check("attention_factor", yarn.attention_factor, 1e-3, 1e3));
  return check("original_positions", yarn.original_positions, 1, 1 << 24);
}

absl::Status CheckLatent(const ModelSpec& spec, const LatentAttention& latent) {
  const auto check = [](std::string_view name, int value, int low, int high, int multiple) {
    if (value >= low && value <= high && value % multiple == 0) return absl::OkStatus();
    return InvalidArgument("latent.", name, " = ", value, " is no multiple of ", multiple, " in ", low, "..", high);
  };
  MOED_RETURN_IF_ERROR(check("q_rank", latent.q_rank, 0, 1 << 17, 1));
  // Heads divide the rows of matrices that are stored eight rows together.
  MOED_RETURN_IF_ERROR(check("kv_rank", latent.kv_rank, kPanelRows, kMostHeadDim, kPanelRows));
  MOED_RETURN_IF_ERROR(check("value_dim", latent.value_dim, kPanelRows, kMostHeadDim, kPanelRows));
  if (!(latent.norm_eps > 0 && latent.norm_eps < 1)) {
    return InvalidArgument("latent.norm_eps = ", latent.norm_eps, " is outside (0, 1)");
  }
  if (spec.rotary_dims == 0 || spec.rotary_dims == spec.head_dim || latent.kv_rank + spec.rotary_dims > kMostHeadDim) {
    return InvalidArgument("rotary_dims = ", spec.rotary_dims, " of head_dim = ", spec.head_dim,
                           " with latent.kv_rank = ", latent.kv_rank);
  }
  if (spec.kv_heads != 1) return InvalidArgument("kv_heads = ", spec.kv_heads, "; latent attention has 1");
  if (spec.qkv_bias || spec.attention_sinks || spec.attention_gate || !spec.windows.empty() || !spec.rotations.empty() ||
      spec.delta_net || spec.qk_norm != ModelSpec::QkNorm::kNone) {
    return InvalidArgument(
        "latent attention with qkv_bias, attention_sinks, attention_gate, windows, rotations, delta_net or qk_norm");
  }
  return absl::OkStatus();
}

absl::Status CheckRotation(const ModelSpec& spec, const Rotation& rotation) {
  if (!(rotation.theta >= 1 && rotation.theta <= 1e15)) {
    return InvalidArgument("rope_theta = ", rotation.theta, " is outside 1..1e15");
  }
  if (!rotation.yarn) return absl::OkStatus();
  MOED_RETURN_IF_ERROR(CheckYarn(*rotation.yarn));
  if (rotation.theta <= 1) return InvalidArgument("rope_theta = ", rotation.theta, "; YaRN needs more than 1");
  // It is a factor of the scores, which is what it does to queries and keys that are rotated whole and stay as they were rotated.
  if (rotation.yarn->attention_factor != 1 && ((spec.RotaryDims() < spec.head_dim && !spec.latent) || spec.qk_norm_after_rope)) {
    return InvalidArgument("yarn.attention_factor = ", rotation.yarn->attention_factor,
                           spec.qk_norm_after_rope ? " with a norm of what was rotated" : " where a part of a head is rotated",
                           "; allowed: 1");
  }
  return absl::OkStatus();
}

// Each of several rotations is some layer's.
absl::Status CheckRotations(const ModelSpec& spec) {
  for (int i = 0; i < spec.rotation_count(); ++i) MOED_RETURN_IF_ERROR(CheckRotation(spec, spec.rotation(i)));
  std::set<int> unused;
  for (int i = 0; i < spec.rotation_count() && !spec.more_rotations.empty(); ++i) unused.insert(i);
  if (spec.rotations.size() != (unused.empty() ? 0 : static_cast<size_t>(spec.layers))) {
    return InvalidArgument("rotations has ", spec.rotations.size(), " entries for ", spec.layers, " layers and ",
                           spec.rotation_count(), " rotations");
  }
  for (const int index : spec.rotations) {
    if (index < 0 || index >= spec.rotation_count()) {
      return InvalidArgument("rotation ", index, " of ", spec.rotation_count());
    }
    unused.erase(index);
  }
  if (!unused.empty()) return InvalidArgument("rotation ", *unused.begin(), " is no layer's");
  return absl::OkStatus();
}

absl::Status CheckWindows(const ModelSpec& spec) {
  if (spec.windows.empty()) return absl::OkStatus();
  if (spec.windows.size() != static_cast<size_t>(spec.layers)) {
    return InvalidArgument("windows has ", spec.windows.size(), " entries for ", spec.layers, " layers");
  }
  const auto [least, most] = std::minmax_element(spec.windows.begin(), spec.windows.end());
  if (*least < 0) return InvalidArgument("a window of ", *least, " positions");
  if (*most == 0) return InvalidArgument("windows without a layer that has one");
  return absl::OkStatus();
}

absl::Status CheckDeltaNet(const ModelSpec& spec) {
  if (spec.delta_net.has_value() != !spec.recurrent.empty()) {
    return InvalidArgument("delta_net and recurrent layers without each other");
  }
  if (spec.latent && (spec.delta_net || spec.attention_gate)) {
    return InvalidArgument("latent attention with recurrent layers or a gate");
  }
  if (!spec.delta_net) return absl::OkStatus();
  const auto check = [](std::string_view name, int value, int low, int high) {
    if (value >= low && value <= high) return absl::OkStatus();
    return InvalidArgument("delta_net.", name, " = ", value, " is outside ", low, "..", high);
  };
  const DeltaNetShape& shape = *spec.delta_net;
  MOED_RETURN_IF_ERROR(check("key_heads", shape.key_heads, 1, 1024));
  MOED_RETURN_IF_ERROR(check("value_heads", shape.value_heads, 1, 1024));
  MOED_RETURN_IF_ERROR(check("key_dim", shape.key_dim, 1, 1024));
  MOED_RETURN_IF_ERROR(check("value_dim", shape.value_dim, 1, 1024));
  MOED_RETURN_IF_ERROR(check("taps", shape.taps, 2, kMostTaps));
  if (shape.value_heads % shape.key_heads != 0) {
    return InvalidArgument("delta_net.value_heads = ", shape.value_heads, " is no multiple of key_heads = ", shape.key_heads);
  }
  if (spec.recurrent.size() != static_cast<size_t>(spec.layers)) {
    return InvalidArgument("recurrent has ", spec.recurrent.size(), " entries for ", spec.layers, " layers");
  }
  const auto recurrent = std::count(spec.recurrent.begin(), spec.recurrent.end(), true);
  if (recurrent == 0 || recurrent == spec.layers) {
    return InvalidArgument(recurrent, " of ", spec.layers, " layers are recurrent; some must be, and some have attention");
  }
  return absl::OkStatus();
}

absl::Status CheckActivation(const ModelSpec& spec) {
  if (!spec.swiglu_limits) return absl::OkStatus();
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
  if ((with_experts < spec.layers) != (spec.dense_ffn > 0)) {
    return InvalidArgument("dense_ffn = ", spec.dense_ffn, " with ", spec.layers - with_experts, " layers without experts");
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
  if (spec.router_scoring == RouterScoring::kSparsemixer && (spec.router_correction || spec.router_groups > 1)) {
    return InvalidArgument("router_scoring = sparsemixer with a correction or groups");
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
  if (spec.heads % spec.kv_heads != 0) {
    return InvalidArgument("heads = ", spec.heads, " is no multiple of kv_heads = ", spec.kv_heads);
  }
  if (spec.head_dim % 2 != 0) return InvalidArgument("head_dim = ", spec.head_dim, " is odd; rotary embeddings need pairs");
  if (spec.rotary_dims % 2 != 0 || spec.rotary_dims > spec.head_dim) {
    return InvalidArgument("rotary_dims = ", spec.rotary_dims, " is odd or exceeds head_dim = ", spec.head_dim);
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
  if (spec.latent) MOED_RETURN_IF_ERROR(CheckLatent(spec, *spec.latent));
  MOED_RETURN_IF_ERROR(CheckRotations(spec));
  MOED_RETURN_IF_ERROR(CheckWindows(spec));
  MOED_RETURN_IF_ERROR(CheckDeltaNet(spec));
  MOED_RETURN_IF_ERROR(CheckActivation(spec));
  return CheckLayers(spec);
}

}  // namespace moed
