// One function a family; each lives in its own file.
#pragma once

#include "core/model/family.h"

namespace moed {

Family MixtralFamily();
Family Qwen2MoeFamily();
Family Qwen3MoeFamily();
Family OlmoeFamily();
Family GptOssFamily();
Family Glm4MoeFamily();
Family Ernie45MoeFamily();
Family Ernie45MoeVlFamily();
Family Ernie45VlMoeFamily();
Family MiniMaxM2Family();
Family HunyuanV1MoeFamily();
Family DeepSeekFamily();
Family GraniteMoeFamily();
Family PhiMoeFamily();
Family DeepSeekV2Family();
Family DeepSeekV3Family();
Family KimiK2Family();
Family Glm4MoeLiteFamily();
Family Qwen3NextFamily();
Family Qwen35MoeFamily();
Family MellumFamily();
Family Lfm2MoeFamily();
Family GraniteMoeHybridFamily();
Family MiniCpmFamily();
Family NemotronHFamily();
Family Gemma4Family();
Family SwitchTransformersFamily();
Family GptsanJapaneseFamily();
Family AfmoeFamily();
Family Dots1Family();
Family SolarOpenFamily();
Family SarvamMoeFamily();
Family ExaoneMoeFamily();
Family FlexOlmoFamily();
Family GraniteMoeSharedFamily();
Family Llama4Family();
Family Mistral4Family();
Family Cohere2MoeFamily();
Family KimiLinearFamily();
Family HyV3Family();
Family Qwen3VlMoeFamily();
Family Qwen3OmniMoeFamily();
Family Glm4vMoeFamily();
Family LagunaFamily();
Family BailingMoeFamily();
Family BailingMoeV2Family();
Family SmallThinkerFamily();

}  // namespace moed
