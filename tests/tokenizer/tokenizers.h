// Tokenizers and golden vectors for the tests.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer/tokenizer.h"
#include "tests/file_text.h"

namespace moed {

std::string TestData(std::string_view name);  // path of a file in tests/tokenizer/data

std::unique_ptr<Tokenizer> Compiled(std::string_view tokenizer_json);
const Tokenizer& DemoTokenizer();   // byte-level, 4,096 pieces
const Tokenizer& LlamaTokenizer();  // a small one: spaces become U+2581, byte fallback, first space stripped
const Tokenizer& UnigramTokenizer();
nlohmann::json LlamaJson();
nlohmann::json UnigramJson();  // as T5 has it

std::vector<int32_t> Values(const std::vector<TokenId>& ids);
std::vector<TokenId> Ids(const std::vector<int32_t>& values);
std::vector<int32_t> EncodeValues(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options = {});
std::string DecodeText(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special_tokens = true);

}  // namespace moed
