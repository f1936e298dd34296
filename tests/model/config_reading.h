// Configurations of the tiny checkpoints, read and refused.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/base/status.h"
#include "core/model/family.h"
#include "nlohmann/json.hpp"
#include "tests/model/packed_model.h"

namespace moed {

inline absl::StatusOr<ModelSpec> ReadSpec(const std::string& text, const std::string& generation_config = "") {
  auto family = FamilyOf(text);
  if (!family.ok()) return family.status();
  return (*family)->read_spec(text, generation_config);
}
inline absl::StatusOr<ModelSpec> Read(const nlohmann::json& config, const std::string& generation_config = "") {
  return ReadSpec(config.dump(), generation_config);
}

// Kimi K2 is DeepSeek-V3 under another name. Text parts are those of whole checkpoints.
inline nlohmann::json ConfigOf(std::string_view family) {
  static const std::map<std::string_view, std::string> kWhole = {{"qwen3_vl_moe_text", "qwen3_vl_moe"},
                                                                 {"qwen3_omni_moe_text", "qwen3_vl_moe"},
                                                                 {"glm4v_moe_text", "glm4v_moe"},
                                                                 {"ernie4_5_vl_moe_text", "ernie4_5_vl_moe"}};
  if (const auto whole = kWhole.find(family); whole != kWhole.end()) {
    nlohmann::json config = nlohmann::json::parse(ReadText(DataFolder() + "/" + whole->second + "/config.json"))["text_config"];
    config["model_type"] = family;
    config["dtype"] = "bfloat16";
    return config;
  }
  if (family == "kimi_k2") {
    nlohmann::json config = ConfigOf("deepseek_v3");
    config["model_type"] = family;
    return config;
  }
  if (family == "ernie4_5_moe_vl") {
    nlohmann::json config = ConfigOf("ernie4_5_vl_moe_text");
    config.erase("mlp_layer_types");
    config.update({{"model_type", family}, {"moe_layer_start_index", 1}, {"moe_layer_end_index", -1}});
    return config;
  }
  std::string folder(family);
  std::ranges::replace(folder, '-', '_');
  return nlohmann::json::parse(ReadText(DataFolder() + "/" + folder + "/config.json"));
}

inline void ExpectRefusal(const absl::Status& status, std::string_view named, std::string_view value) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(ToAbsl(named)), absl::string_view::npos) << status << "\nshould name " << named;
  EXPECT_NE(status.message().find(ToAbsl(value)), absl::string_view::npos) << status << "\nshould show " << value;
}

}  // namespace moed
