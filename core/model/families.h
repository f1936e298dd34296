// One function a family; each lives in its own file.
#pragma once

#include "core/model/family.h"

namespace moed {

Family MixtralFamily();
Family Qwen2MoeFamily();
Family Qwen3MoeFamily();
Family OlmoeFamily();
Family GptOssFamily();

}  // namespace moed
