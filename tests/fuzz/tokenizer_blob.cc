// A compiled tokenizer as it travels in a store. Length and checksum are made right.
#include "core/tokenizer/tokenizer.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

namespace {

constexpr size_t kHeaderBytes = 32, kChecksumAt = 16, kBytesAt = 24;  // core/tokenizer/blob.h

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string blob(fuzz::Text(data, size));
  if (size >= kHeaderBytes) {
    fuzz::PutAt<uint64_t>(blob, kBytesAt, size);
    fuzz::PutAt(blob, kChecksumAt, Checksum(std::string_view(blob).substr(kBytesAt)));
  }
  const auto tokenizer = Tokenizer::FromBlob(std::move(blob));
  if (!tokenizer.ok()) return 0;
  const auto tokens = (*tokenizer)->Encode("ab abc <s>\xE4\xBD\xA0 xxxx'd 12");
  if (!tokens.ok()) return 0;
  for (const TokenId token : *tokens) MOED_CHECK(token.value() < (*tokenizer)->vocabulary_size());
  MOED_CHECK((*tokenizer)->Decode(*tokens).ok());
  return 0;
}
