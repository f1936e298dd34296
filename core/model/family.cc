#include "core/model/family.h"

#include <array>

#include "core/base/status.h"
#include "core/model/config_reader.h"
#include "core/model/families.h"

namespace moed {

std::span<const Family> Families() {
  static const std::array kFamilies = {
      MixtralFamily(),      Qwen2MoeFamily(),     Qwen3MoeFamily(),           OlmoeFamily(),
      GptOssFamily(),       Glm4MoeFamily(),      Ernie45MoeFamily(),         Ernie45MoeVlFamily(),
      Ernie45VlMoeFamily(), MiniMaxM2Family(),    HunyuanV1MoeFamily(),       DeepSeekFamily(),
      GraniteMoeFamily(),   PhiMoeFamily(),       DeepSeekV2Family(),         DeepSeekV3Family(),
      KimiK2Family(),       Glm4MoeLiteFamily(),  Qwen3NextFamily(),          Qwen35MoeFamily(),
      MellumFamily(),       Lfm2MoeFamily(),      GraniteMoeHybridFamily(),   MiniCpmFamily(),
      Gemma4Family(),       NemotronHFamily(),    SwitchTransformersFamily(), GptsanJapaneseFamily(),
      AfmoeFamily(),        Dots1Family(),        SolarOpenFamily(),          SarvamMoeFamily(),
      ExaoneMoeFamily(),    FlexOlmoFamily(),     GraniteMoeSharedFamily(),   Llama4Family(),
      Mistral4Family(),     Cohere2MoeFamily(),   KimiLinearFamily(),         HyV3Family(),
      Qwen3VlMoeFamily(),   Qwen3OmniMoeFamily(), Glm4vMoeFamily(),           LagunaFamily(),
      BailingMoeFamily(),   BailingMoeV2Family(), SmallThinkerFamily(),
  };
  return kFamilies;
}

absl::StatusOr<const Family*> FamilyNamed(std::string_view model_type) {
  for (const Family& family : Families()) {
    if (family.model_type == model_type) return &family;
    if (!model_type.empty() && family.whole_model_type == model_type) return &family;
  }
  const auto names = [](const Family& family) {
    return StrCat(family.model_type, family.whole_model_type.empty() ? "" : ", ", family.whole_model_type);
  };
  return InvalidArgument("unknown model_type \"", model_type, "\"; known: ", JoinNames(Families(), names));
}

absl::StatusOr<const Family*> FamilyOf(std::string_view config_json) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  for (const Family& family : Families()) {
    const bool named = !family.architecture.empty() && config.Is("architectures", {family.architecture});
    if (named && !config.Has("model_type")) return &family;
  }
  const std::string model_type = config.String("model_type");
  MOED_RETURN_IF_ERROR(config.status());
  return FamilyNamed(model_type);
}

}  // namespace moed
