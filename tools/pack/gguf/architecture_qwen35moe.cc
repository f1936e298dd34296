// qwen35moe (Qwen3.5-MoE, Qwen3.6-MoE, the text part): as qwen3next with projections of its own. Value heads stand by their place
// among those of a key head.
#include <string>
#include <vector>

#include "core/base/status.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/delta_net.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  return reader.Finish(ReadGgufDeltaNet(reader, "qwen3_5_moe_text"));
}

std::vector<GgufHeadOrder> HeadOrders(const ModelSpec& spec) {
  const DeltaNetShape& shape = *spec.delta_net;
  const int groups = shape.key_heads, heads = shape.value_heads / shape.key_heads, keys = 2 * shape.KeyWidth();
  std::vector<GgufHeadOrder> orders;
  for (int index = 0; heads > 1 && index < spec.layers; ++index) {
    if (!spec.IsRecurrent(LayerId(index))) continue;
    const std::string layer = StrCat("blk.", index, ".");
    for (const char* mixed : {"attn_qkv.weight", "ssm_conv1d.weight"}) {
      orders.push_back({layer + mixed, false, keys, groups, heads, shape.value_dim});
    }
    orders.push_back({layer + "attn_gate.weight", false, 0, groups, heads, shape.value_dim});
    orders.push_back({layer + "ssm_out.weight", true, 0, groups, heads, shape.value_dim});
    for (const char* number : {"ssm_alpha.weight", "ssm_beta.weight", "ssm_a", "ssm_dt.bias"}) {
      orders.push_back({layer + number, false, 0, groups, heads, 1});
    }
  }
  return orders;
}

}  // namespace

GgufArchitecture Qwen35MoeArchitecture() {
  return {.name = "qwen35moe",
          .model_type = "qwen3_5_moe_text",
          .read_spec = ReadSpec,
          .own_names = GgufDeltaNetNames(),
          .parts = GgufDeltaNetParts,
          .head_orders = HeadOrders};
}

}  // namespace moed
