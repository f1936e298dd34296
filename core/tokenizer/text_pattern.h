// Regular expressions of tokenizer.json. They are written for Oniguruma; PCRE2 runs them, after the few constructs that differ
// were respelled and the characters that PCRE2 does not know were added to properties. What would mean something else to PCRE2 is
// refused.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace moed {

// Immutable, thread-safe.
class TextPattern {
 public:
  struct Match {
    size_t begin, end;
  };

  // One caller's place to search in: not synchronised. The pattern must outlive it.
  class Searcher {
   public:
    explicit Searcher(const TextPattern& pattern);
    ~Searcher();
    Searcher(Searcher&& other) noexcept;
    Searcher& operator=(Searcher&&) = delete;
    // The first match at or after `from` in `text`, which is valid UTF-8. `from`: 0, or the end of the match before.
    // RESOURCE_EXHAUSTED when the pattern backtracks without end.
    absl::StatusOr<std::optional<Match>> Find(std::string_view text, size_t from) const;

   private:
    const TextPattern* pattern_;
    pcre2_real_match_data_8* data_;
    pcre2_real_match_context_8* context_;
  };

  // `literal`: the pattern is plain text. INVALID_ARGUMENT names what is not supported; so is a pattern that matches empty text.
  static absl::StatusOr<TextPattern> Compile(std::string_view pattern, bool literal);

  size_t memory_bytes() const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  TextPattern(std::string source, pcre2_real_code_8* code) : source_(std::move(source)), code_(code) {}

  std::string source_;
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

// Respells an Oniguruma pattern for PCRE2.
absl::StatusOr<std::string> PatternForPcre2(std::string_view pattern);

}  // namespace moed
