// spiece.model: SentencePiece's own file of a unigram model, as T5 has it.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moed {

// A tokenizer.json that means the same, with `extra_ids` tokens "<extra_id_0>", ... behind the pieces, the last one first, and an
// end of sequence behind a text. INVALID_ARGUMENT for bytes that are no such file, and for what T5's has not, by name.
absl::StatusOr<std::string> SentencePieceTokenizer(std::string_view model, int extra_ids);

}  // namespace moed
