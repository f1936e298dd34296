#include "tools/plan/scored_text.h"

#include <algorithm>
#include <numeric>

#include "core/base/check.h"
#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/store/checksum.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

using Json = nlohmann::json;

absl::Status AddIds(const Json& line, const char* name, int vocabulary, std::vector<TokenId>& tokens) {
  const auto ids = line.is_object() ? line.find(name) : line.end();
  if (!line.is_object() || ids == line.end() || !ids->is_array() || ids->empty()) {
    return InvalidArgument("\"", name,
                           "\" is missing, or no list of token ids; a line is {\"source\": [ids], \"target\": [ids]}");
  }
  for (const Json& id : *ids) {
    const bool known = id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < vocabulary;
    if (!known) return InvalidArgument("\"", name, "\" has ", ShownJson(id), "; token ids are from 0 to ", vocabulary - 1);
    tokens.push_back(TokenId(id.get<int32_t>()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ScoredText> ScoredText::OfText(std::string_view text, const Tokenizer& tokenizer, const ModelSpec& spec,
                                              int tokens, int window) {
  if (window > spec.max_positions) {
    return InvalidArgument("a window of ", window, " tokens is more than the model's context of ", spec.max_positions);
  }
  ScoredText scored;
  MOED_ASSIGN_OR_RETURN(scored.tokens_, tokenizer.Encode(text, {.add_special_tokens = false, .parse_special_tokens = false}));
  if (scored.tokens_.size() < static_cast<size_t>(tokens)) {
    return InvalidArgument("the text has ", scored.tokens_.size(), " tokens, ", tokens, " are to be scored");
  }
  scored.tokens_.resize(tokens);
  for (int first = 0; tokens - first > 1; first += window) {
    scored.cuts_.push_back({static_cast<size_t>(first), 0, std::min(window, tokens - first)});
  }
  return scored;
}

absl::StatusOr<ScoredText> ScoredText::OfPairs(std::string_view lines, const ModelSpec& spec, int tokens) {
  MOED_CHECK(spec.encoder.has_value());
  ScoredText scored;
  int left = tokens;
  for (int number = 1; !lines.empty(); ++number) {
    const std::string_view text = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), text.size() + 1));
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    Cut cut{.first = scored.tokens_.size()};
    absl::Status status = AddIds(line, "source", spec.vocabulary, scored.tokens_);
    cut.source = static_cast<int>(scored.tokens_.size() - cut.first);
    scored.tokens_.push_back(TokenId(spec.encoder->start));
    status.Update(AddIds(line, "target", spec.vocabulary, scored.tokens_));
    if (!status.ok()) return Annotate(status, StrCat("line ", number));
    cut.tokens = static_cast<int>(scored.tokens_.size() - cut.first) - cut.source;
    if (cut.source + cut.tokens > spec.max_positions) {
      return InvalidArgument("line ", number, ": ", cut.source + cut.tokens, " tokens are more than the model's context of ",
                             spec.max_positions);
    }
    left -= cut.tokens - 1;
    if (left < 0) {
      scored.tokens_.resize(cut.first);
      break;
    }
    scored.cuts_.push_back(cut);
  }
  if (scored.cuts_.empty()) return InvalidArgument("no pair has a target within ", tokens, " tokens, which are to be scored");
  return scored;
}

ScoredText::Window ScoredText::window(int number) const {
  const Cut& cut = cuts_[number];
  const std::span<const TokenId> rest = std::span<const TokenId>(tokens_).subspan(cut.first);
  return {rest.first(cut.source), rest.subspan(cut.source, cut.tokens)};
}

int ScoredText::scored_tokens() const {
  return std::accumulate(cuts_.begin(), cuts_.end(), 0, [](int sum, const Cut& cut) { return sum + cut.tokens - 1; });
}

int ScoredText::MostStepTokens() const {
  int most = 0;
  for (const Cut& cut : cuts_) most = std::max({most, cut.source, cut.tokens});
  return most;
}

int ScoredText::MostContext() const {
  int most = 0;
  for (const Cut& cut : cuts_) most = std::max(most, cut.source + cut.tokens);
  return most;
}

uint64_t ScoredText::Hash() const {
  const auto number = [](TokenId token) { return token.value(); };
  return Checksum(StrCat(JoinNames(cuts_, [](const Cut& cut) { return StrCat(cut.source, "+", cut.tokens); }), ":",
                         JoinNames(tokens_, number)));
}

}  // namespace moed
