#include "core/model/attention_check.h"

#include <algorithm>
#include <set>

#include "core/base/status.h"
#include "core/kernels/kv_rows.h"
#include "core/quant/format.h"

namespace moed {
namespace {

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

absl::Status CheckDivisors(const ModelSpec& spec, int index, const Rotation& rotation) {
  const auto& [divisors, attention_factor] = *rotation.divided;
  if (rotation.yarn || rotation.pairs > 0 || spec.latent) return InvalidArgument("divided with yarn, pairs or latent attention");
  if (divisors.size() != static_cast<size_t>(spec.RotaryDims(index) / 2)) {
    return InvalidArgument("divided.divisors has ", divisors.size(), " entries for ", spec.RotaryDims(index),
                           " rotary dimensions");
  }
  const auto bad = std::ranges::find_if(divisors, [](double divisor) { return !(divisor >= 1e-3 && divisor <= 1e6); });
  if (bad != divisors.end()) return InvalidArgument("divided.divisors has ", *bad, ", which is outside 0.001..1e6");
  if (attention_factor >= 1e-3 && attention_factor <= 1e3) return absl::OkStatus();
  return InvalidArgument("divided.attention_factor = ", attention_factor, " is outside 0.001..1000");
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
      !spec.unrotated_layers.empty() || spec.value_norm || spec.qk_norm != ModelSpec::QkNorm::kNone) {
    return InvalidArgument(
        "latent attention with qkv_bias, attention_sinks, attention_gate, windows, rotations, unrotated_layers, qk_norm or "
        "value_norm");
  }
  return absl::OkStatus();
}

absl::Status CheckRotation(const ModelSpec& spec, int index) {
  const Rotation rotation = spec.rotation(index);
  if (!(rotation.theta >= 1 && rotation.theta <= 1e15)) {
    return InvalidArgument("rope_theta = ", rotation.theta, " is outside 1..1e15");
  }
  if (const int dims = spec.RotaryDims(index); dims < 2 || dims % 2 != 0 || dims > spec.HeadsOf(index).head_dim) {
    return InvalidArgument("rotary_dims = ", dims, " is odd or exceeds head_dim = ", spec.HeadsOf(index).head_dim);
  }
  if (rotation.pairs < 0 || 2 * int64_t{rotation.pairs} > spec.RotaryDims(index) || (rotation.pairs > 0 && rotation.yarn)) {
    return InvalidArgument("pairs = ", rotation.pairs, " of a rotation of ", spec.RotaryDims(index), " dimensions",
                           rotation.yarn ? " with YaRN" : "");
  }
  if (rotation.divided) MOED_RETURN_IF_ERROR(CheckDivisors(spec, index, rotation));
  if (rotation.yarn) MOED_RETURN_IF_ERROR(CheckYarn(*rotation.yarn));
  if (rotation.yarn && rotation.theta <= 1) return InvalidArgument("rope_theta = ", rotation.theta, "; YaRN needs more than 1");
  if (const double factor = rotation.AttentionFactor(); factor != 1 && spec.qk_norm == ModelSpec::QkNorm::kUnit) {
    return InvalidArgument("attention_factor = ", factor, " with a unit norm of what was rotated; allowed: 1");
  }
  return absl::OkStatus();
}

// The second rotation is that of long contexts.
absl::Status CheckContexts(const ModelSpec& spec) {
  const auto divides = [](const Rotation& rotation) { return rotation.divided.has_value(); };
  if (spec.more_rotations.size() != 1 || !divides(spec.rotation(0)) || !divides(spec.rotation(1)) || !spec.rotations.empty() ||
      !spec.more_heads.empty() || spec.latent) {
    return InvalidArgument(
        "short_context = ", spec.short_context,
        " without a divided rotation for each kind of context, or with rotations of layers or latent attention");
  }
  if (spec.short_context <= spec.max_positions) return absl::OkStatus();
  return InvalidArgument("short_context = ", spec.short_context, " exceeds max_positions = ", spec.max_positions);
}

// Each of several rotations is some layer's.
absl::Status CheckRotations(const ModelSpec& spec) {
  for (int i = 0; i < spec.rotation_count(); ++i) MOED_RETURN_IF_ERROR(CheckRotation(spec, i));
  if (spec.short_context > 0) return CheckContexts(spec);
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

absl::Status CheckUnrotatedLayers(const ModelSpec& spec) {
  const std::vector<bool>& still = spec.unrotated_layers;
  if (still.empty()) return absl::OkStatus();
  const auto count = std::ranges::count(still, true);
  if (!spec.unrotated && still.size() == static_cast<size_t>(spec.layers) && count > 0 && count < spec.layers) {
    return absl::OkStatus();
  }
  return InvalidArgument("unrotated_layers has ", still.size(), " entries for ", spec.layers, " layers, of which ", count,
                         " do not turn", spec.unrotated ? ", with unrotated" : "", "; some must turn, and some not");
}

absl::Status CheckHeadShape(const ModelSpec& spec, const HeadShape& shape) {
  const int heads = spec.QueryHeads(shape);
  if (heads > 1024) return InvalidArgument("heads = ", heads, " is outside 1..1024");
  if (shape.kv_heads < 1 || shape.kv_heads > 1024 || heads % shape.kv_heads != 0) {
    return InvalidArgument("heads = ", heads, " is no multiple of kv_heads = ", shape.kv_heads);
  }
  if (shape.head_dim < 2 || shape.head_dim > kMostHeadDim) {
    return InvalidArgument("head_dim = ", shape.head_dim, " is outside 2..", kMostHeadDim);
  }
  if (shape.head_dim % 2 != 0) return InvalidArgument("head_dim = ", shape.head_dim, " is odd; rotary embeddings need pairs");
  if (shape.values_are_keys && (!spec.value_norm || spec.qkv_bias || spec.attention_gate)) {
    return InvalidArgument("values_are_keys without value_norm, or with qkv_bias or attention_gate");
  }
  return absl::OkStatus();
}

absl::Status CheckHeads(const ModelSpec& spec) {
  if (!spec.more_heads.empty() && spec.more_heads.size() != spec.more_rotations.size()) {
    return InvalidArgument("more_heads has ", spec.more_heads.size(), " entries for ", spec.more_rotations.size(),
                           " more rotations");
  }
  for (int i = 0; i < spec.rotation_count(); ++i) MOED_RETURN_IF_ERROR(CheckHeadShape(spec, spec.HeadsOf(i)));
  if (!spec.more_heads.empty() && !spec.recurrent.empty()) return InvalidArgument("more_heads with recurrent layers");
  if (spec.gate_kind == ModelSpec::GateKind::kSigmoid || spec.attention_gate) return absl::OkStatus();
  return InvalidArgument("gate_kind without attention_gate");
}

absl::Status CheckWindows(const ModelSpec& spec) {
  if (spec.windows_are_chunks && spec.windows.empty()) return InvalidArgument("windows_are_chunks without windows");
  if (spec.windows.empty()) return absl::OkStatus();
  if (spec.windows.size() != static_cast<size_t>(spec.layers)) {
    return InvalidArgument("windows has ", spec.windows.size(), " entries for ", spec.layers, " layers");
  }
  const auto [least, most] = std::minmax_element(spec.windows.begin(), spec.windows.end());
  if (*least < 0) return InvalidArgument("a window of ", *least, " positions");
  if (*most == 0) return InvalidArgument("windows without a layer that has one");
  return absl::OkStatus();
}

absl::Status CheckTemperature(const ModelSpec& spec) {
  if (!spec.temperature) return absl::OkStatus();
  const auto& [scale, positions, shift, of_unrotated] = *spec.temperature;
  if (!(scale >= 0 && scale <= 100)) return InvalidArgument("temperature.scale = ", scale, " is outside 0..100");
  if (positions < 1 || positions > 1 << 24)
    return InvalidArgument("temperature.positions = ", positions, " is outside 1..", 1 << 24);
  if (shift < 0 || shift > 1) return InvalidArgument("temperature.shift = ", shift, " is outside 0..1");
  if (spec.qk_norm == ModelSpec::QkNorm::kPerHead || (of_unrotated && spec.latent)) {
    return InvalidArgument("temperature with qk_norm = per_head, or of layers that do not rotate with latent attention");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAttention(const ModelSpec& spec) {
  MOED_RETURN_IF_ERROR(CheckHeads(spec));
  if (spec.rotary_dims % 2 != 0 || spec.rotary_dims > spec.head_dim) {
    return InvalidArgument("rotary_dims = ", spec.rotary_dims, " is odd or exceeds head_dim = ", spec.head_dim);
  }
  if (spec.qk_norm_after_rope && spec.qk_norm == ModelSpec::QkNorm::kWhole) {
    return InvalidArgument("qk_norm_after_rope with a qk_norm of all heads together; allowed: that of each head");
  }
  if (spec.qk_norm == ModelSpec::QkNorm::kUnit && (spec.qk_norm_after_rope || spec.RotatesParts())) {
    return InvalidArgument("qk_norm = unit with qk_norm_after_rope or where a part of each head is rotated");
  }
  MOED_RETURN_IF_ERROR(CheckTemperature(spec));
  if (spec.latent) MOED_RETURN_IF_ERROR(CheckLatent(spec, *spec.latent));
  MOED_RETURN_IF_ERROR(CheckUnrotatedLayers(spec));
  MOED_RETURN_IF_ERROR(CheckRotations(spec));
  return CheckWindows(spec);
}

}  // namespace moed
