#include "core/grammar/matcher_pool.h"

#include <algorithm>
#include <utility>

#include "core/base/retry_after.h"
#include "core/base/status.h"

namespace moed::grammar {
namespace {

constexpr const char* kRemedy = "; a larger --memory-budget has more";

struct Holding {
  Holding(ByteShare::Held bytes, std::shared_ptr<const Grammar> grammar, const VocabularyTrie& trie, uint64_t cache_bytes)
      : held(std::move(bytes)), matcher(std::move(grammar), trie, cache_bytes) {}

  ByteShare::Held held;  // for longer than the matcher
  Matcher matcher;
};

}  // namespace

MatcherPool::MatcherPool(const Tokenizer& tokenizer, int vocabulary, uint64_t most_bytes)
    : vocabulary_(vocabulary),
      trie_(std::make_unique<const VocabularyTrie>(tokenizer, vocabulary)),
      matchers_(most_bytes - std::min(most_bytes, trie_->bytes())) {
  if (trie_->bytes() > most_bytes) trie_.reset();
}

absl::StatusOr<std::shared_ptr<Matcher>> MatcherPool::Make(const Syntax& syntax, int most_tokens) {
  if (trie_ == nullptr) {
    return FieldRefusal(syntax.field, InvalidArgument("the server's share for formats does not hold its vocabulary", kRemedy));
  }
  MOED_ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, Grammar::FromSyntax(syntax, *trie_, most_tokens));
  const uint64_t cache_bytes = MatcherCacheBytes(vocabulary_);
  const uint64_t bytes = grammar->bytes() + cache_bytes;
  MOED_ASSIGN_OR_RETURN(ByteShare::Held held, Take(bytes, syntax.field));
  auto holding = std::make_shared<Holding>(std::move(held), std::move(grammar), *trie_, cache_bytes);
  if (const absl::Status& made = holding->matcher.status(); !made.ok()) return FieldRefusal(syntax.field, made);
  return std::shared_ptr<Matcher>(holding, &holding->matcher);
}

absl::StatusOr<ByteShare::Held> MatcherPool::Take(uint64_t bytes, const std::string& field) {
  if (bytes > matchers_.most()) {
    return FieldRefusal(
        field, InvalidArgument("needs ", bytes, " bytes, and the server's share for formats has ", matchers_.most(), kRemedy));
  }
  ByteShare::Held held = matchers_.Take(bytes);
  if (held) return held;
  return RetryAfter(ResourceExhausted(field, field.empty() ? "" : ": ", "needs ", bytes, " bytes, of which other requests leave ",
                                      matchers_.left(), "; try again when they have ended"),
                    kRetrySeconds);
}

}  // namespace moed::grammar
