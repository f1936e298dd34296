// tokenizer.json, compiled: what is accepted makes a tokenizer that encodes text and decodes its own tokens.
#include "core/tokenizer/tokenizer.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto blob = CompileTokenizer(fuzz::Text(data, size));
  if (!blob.ok()) return 0;
  const auto tokenizer = Tokenizer::FromBlob(*std::move(blob));
  MOED_CHECK(tokenizer.ok());
  const auto tokens = (*tokenizer)->Encode("ab abc <s>\xE4\xBD\xA0 xxxx'd 12");
  if (tokens.ok()) MOED_CHECK((*tokenizer)->Decode(*tokens).ok());
  return 0;
}
