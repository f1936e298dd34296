// A store, and what is read from it before anything is planned.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/spec.h"
#include "core/store/store.h"
#include "core/tokenizer/chat_settings.h"
#include "core/tokenizer/tokenizer.h"

namespace moed {

struct PackedModel {
  std::unique_ptr<StoreReader> store;  // its tokenizer is taken
  ModelSpec spec;
  std::unique_ptr<Tokenizer> tokenizer;
  ChatSettings chat;
};

// Errors name the path or what is damaged.
absl::StatusOr<PackedModel> OpenPackedModel(const std::string& path);

}  // namespace moed
