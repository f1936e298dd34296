#include "core/serving/packed_model.h"

#include <utility>

#include "core/base/status.h"

namespace moed {

absl::StatusOr<PackedModel> OpenPackedModel(const std::string& path) {
  PackedModel model;
  MOED_ASSIGN_OR_RETURN(model.store, StoreReader::Open(path));
  MOED_ASSIGN_OR_RETURN(model.spec, SpecFromJson(model.store->description().model_spec));
  std::string blob = model.store->TakeTokenizer();
  MOED_ASSIGN_OR_RETURN(model.chat, ChatSettingsOf(blob));
  MOED_ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::FromBlob(std::move(blob)));
  return model;
}

}  // namespace moed
