#include "core/grammar/matcher_pool.h"

#include "core/base/status.h"

namespace moed::grammar {
namespace {

absl::StatusOr<std::shared_ptr<const Grammar>> Compiled(const TextFormat& format) {
  switch (format.kind) {
    case TextFormat::Kind::kJsonSchema:
      return Grammar::FromJsonSchema(format.source);
    case TextFormat::Kind::kRegex:
      return Grammar::FromRegex(format.source);
    default:
      return Grammar::AnyJsonObject();
  }
}

}  // namespace

MatcherPool::MatcherPool(const Tokenizer& tokenizer, int vocabulary, uint64_t most_bytes)
    : vocabulary_(vocabulary), trie_(std::make_unique<const VocabularyTrie>(tokenizer, vocabulary)) {
  if (trie_->bytes() <= most_bytes) {
    most_bytes_ = most_bytes - trie_->bytes();
  } else {
    trie_.reset();
  }
}

absl::StatusOr<std::shared_ptr<Matcher>> MatcherPool::Make(const TextFormat& format) {
  MOED_ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, Compiled(format));
  const uint64_t cache_bytes = MatcherCacheBytes(vocabulary_);
  const uint64_t bytes = grammar->bytes() + cache_bytes;
  MOED_RETURN_IF_ERROR(Take(bytes));
  auto matcher = std::make_unique<Matcher>(std::move(grammar), *trie_, cache_bytes);
  return std::shared_ptr<Matcher>(matcher.release(), [this, bytes](Matcher* ended) {
    delete ended;
    taken_ -= bytes;
  });
}

absl::Status MatcherPool::Take(uint64_t bytes) {
  if (bytes > most_bytes_) {
    return InvalidArgument("needs ", bytes, " bytes, and the server's share for formats has ", most_bytes_,
                           "; a larger --memory-budget has more");
  }
  uint64_t taken = taken_;
  do {
    if (taken + bytes > most_bytes_) {
      return ResourceExhausted("needs ", bytes, " bytes, of which other requests leave ", most_bytes_ - taken,
                               "; try again when they have ended");
    }
  } while (!taken_.compare_exchange_weak(taken, taken + bytes));
  return absl::OkStatus();
}

}  // namespace moed::grammar
