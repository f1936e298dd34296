#include "core/tokenizer/pre_tokenizer.h"

#include <string>

#include "core/base/status.h"

namespace moed {
namespace {

// Whether a range joins the one before it, given which of the two are matches. (kRemoved drops matches beforehand.)
bool Joins(SplitBehavior behavior, bool previous_match, bool match) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
    case SplitBehavior::kRemoved:
      return false;
    case SplitBehavior::kMergedWithPrevious:
      return match && !previous_match;
    case SplitBehavior::kMergedWithNext:
      return !match && previous_match;
    case SplitBehavior::kContiguous:
      return match == previous_match;
  }
  return false;
}

std::string ReplaceSpaces(std::string_view text, std::string_view space) {
  std::string replaced;
  replaced.reserve(text.size());
  for (const char c : text) {
    if (c == ' ') {
      replaced += space;
    } else {
      replaced += c;
    }
  }
  return replaced;
}

}  // namespace

// One text's way through the steps: a piece goes through all of them before the next one begins, so nothing is collected.
class PreTokenizer::Run {
 public:
  Run(std::span<const Step> steps, absl::FunctionRef<absl::Status(std::string_view)> word) : steps_(steps), word_(word) {
    searchers_.reserve(steps.size());
    for (const Step& step : steps) searchers_.push_back(step.pattern ? std::optional<Searcher>(*step.pattern) : std::nullopt);
  }

  absl::Status Piece(size_t at, std::string_view piece, bool text_begins) {
    if (piece.empty()) return absl::OkStatus();
    if (at == steps_.size()) return word_(piece);
    const PreTokenizerStep& spec = steps_[at].spec;
    std::string changed;
    if (!spec.space.empty()) piece = changed = ReplaceSpaces(piece, spec.space);
    const bool wants_prefix =
        spec.prefix_rule == PrefixRule::kEveryPiece || (spec.prefix_rule == PrefixRule::kFirstPiece && text_begins);
    if (wants_prefix && !piece.starts_with(spec.prefix)) piece = changed = StrCat(spec.prefix, piece);
    return searchers_[at] ? SplitPiece(at, piece, text_begins) : Piece(at + 1, piece, text_begins);
  }

 private:
  using Searcher = TextPattern::Searcher;

  struct Range {
    size_t begin, end;
    bool match;
  };

  absl::Status SplitPiece(size_t at, std::string_view piece, bool text_begins) {
    const PreTokenizerStep& spec = steps_[at].spec;
    std::optional<Range> pending;
    const auto flush = [&]() -> absl::Status {
      if (!pending) return absl::OkStatus();
      return Piece(at + 1, piece.substr(pending->begin, pending->end - pending->begin), text_begins && pending->begin == 0);
    };
    bool previous_match = false;
    const auto add = [&](Range range) -> absl::Status {
      if (range.begin == range.end) return absl::OkStatus();
      range.match ^= spec.invert;
      if (range.match && spec.behavior == SplitBehavior::kRemoved) return absl::OkStatus();
      if (pending && Joins(spec.behavior, previous_match, range.match)) {
        pending->end = range.end;
      } else {
        MOED_RETURN_IF_ERROR(flush());
        pending = range;
      }
      previous_match = range.match;
      return absl::OkStatus();
    };
    size_t done = 0;
    while (done < piece.size()) {
      MOED_ASSIGN_OR_RETURN(const auto match, searchers_[at]->Find(piece, done));
      if (!match) break;
      MOED_RETURN_IF_ERROR(add({done, match->begin, false}));
      MOED_RETURN_IF_ERROR(add({match->begin, match->end, true}));
      done = match->end;
    }
    MOED_RETURN_IF_ERROR(add({done, piece.size(), false}));
    return flush();
  }

  std::span<const Step> steps_;
  absl::FunctionRef<absl::Status(std::string_view)> word_;
  std::vector<std::optional<Searcher>> searchers_;
};

absl::StatusOr<PreTokenizer> PreTokenizer::Make(std::span<const PreTokenizerStep> steps) {
  PreTokenizer made;
  for (const PreTokenizerStep& spec : steps) {
    Step& step = made.steps_.emplace_back(Step{spec, std::nullopt});
    if (spec.pattern.empty()) continue;
    MOED_ASSIGN_OR_RETURN(step.pattern, TextPattern::Compile(spec.pattern, spec.literal));
  }
  return made;
}

absl::Status PreTokenizer::Split(std::string_view text, bool text_begins,
                                 absl::FunctionRef<absl::Status(std::string_view)> word) const {
  return Run(steps_, word).Piece(0, text, text_begins);
}

size_t PreTokenizer::memory_bytes() const {
  size_t bytes = steps_.capacity() * sizeof(Step);
  for (const Step& step : steps_) {
    bytes += step.spec.pattern.capacity() + (step.pattern ? step.pattern->memory_bytes() : 0);
  }
  return bytes;
}

}  // namespace moed
