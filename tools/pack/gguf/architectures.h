// One function an architecture; each lives in its own file.
#pragma once

#include "tools/pack/gguf/architecture.h"

namespace moed {

GgufArchitecture LlamaArchitecture();
GgufArchitecture Qwen2MoeArchitecture();
GgufArchitecture Qwen3MoeArchitecture();
GgufArchitecture OlmoeArchitecture();
GgufArchitecture GptOssArchitecture();
GgufArchitecture Glm4MoeArchitecture();
GgufArchitecture MiniMaxM2Architecture();
GgufArchitecture Ernie45MoeArchitecture();
GgufArchitecture HunyuanMoeArchitecture();
GgufArchitecture DeepSeekArchitecture();
GgufArchitecture DeepSeek2Architecture();
GgufArchitecture GraniteMoeArchitecture();
GgufArchitecture GraniteHybridArchitecture();
GgufArchitecture Lfm2MoeArchitecture();
GgufArchitecture PhiMoeArchitecture();
GgufArchitecture MellumArchitecture();
GgufArchitecture Qwen3NextArchitecture();
GgufArchitecture Qwen35MoeArchitecture();
GgufArchitecture Gemma4Architecture();
GgufArchitecture NemotronHMoeArchitecture();
GgufArchitecture AfmoeArchitecture();
GgufArchitecture Dots1Architecture();
GgufArchitecture ExaoneMoeArchitecture();
GgufArchitecture Llama4Architecture();
GgufArchitecture Mistral4Architecture();
GgufArchitecture Cohere2MoeArchitecture();
GgufArchitecture KimiLinearArchitecture();
GgufArchitecture HyV3Architecture();
GgufArchitecture Qwen3VlMoeArchitecture();
GgufArchitecture LagunaArchitecture();
GgufArchitecture BailingMoeArchitecture();
GgufArchitecture BailingMoe2Architecture();
GgufArchitecture SmallThinkerArchitecture();

}  // namespace moed
