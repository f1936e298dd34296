#include "core/grammar/matcher_pool.h"

#include "core/base/retry_after.h"
#include "core/base/status.h"

namespace moed::grammar {
namespace {

constexpr const char* kRemedy = "; a larger --memory-budget has more";

}  // namespace

MatcherPool::MatcherPool(const Tokenizer& tokenizer, int vocabulary, uint64_t most_bytes)
    : vocabulary_(vocabulary), trie_(std::make_unique<const VocabularyTrie>(tokenizer, vocabulary)) {
  if (trie_->bytes() <= most_bytes) {
    most_bytes_ = most_bytes - trie_->bytes();
  } else {
    trie_.reset();
  }
}

absl::StatusOr<std::shared_ptr<Matcher>> MatcherPool::Make(const Syntax& syntax) {
  if (trie_ == nullptr) {
    return FieldRefusal(syntax.field, InvalidArgument("the server's share for formats does not hold its vocabulary", kRemedy));
  }
  MOED_ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, Grammar::FromSyntax(syntax, *trie_));
  const uint64_t cache_bytes = MatcherCacheBytes(vocabulary_);
  const uint64_t bytes = grammar->bytes() + cache_bytes;
  MOED_RETURN_IF_ERROR(Take(bytes, syntax.field));
  auto matcher = std::make_unique<Matcher>(std::move(grammar), *trie_, cache_bytes);
  return std::shared_ptr<Matcher>(matcher.release(), [this, bytes](Matcher* ended) {
    delete ended;
    taken_ -= bytes;
  });
}

absl::Status MatcherPool::Take(uint64_t bytes, const std::string& field) {
  if (bytes > most_bytes_) {
    return FieldRefusal(
        field, InvalidArgument("needs ", bytes, " bytes, and the server's share for formats has ", most_bytes_, kRemedy));
  }
  uint64_t taken = taken_;
  do {
    if (taken + bytes > most_bytes_) {
      return RetryAfter(
          ResourceExhausted(field, field.empty() ? "" : ": ", "needs ", bytes, " bytes, of which other requests leave ",
                            most_bytes_ - taken, "; try again when they have ended"),
          kRetrySeconds);
    }
  } while (!taken_.compare_exchange_weak(taken, taken + bytes));
  return absl::OkStatus();
}

}  // namespace moed::grammar
