#include "core/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/status.h"
#include "core/tokenizer/unicode.h"

namespace moed {
namespace {

constexpr double kUnknownPenalty = 10;  // an unknown character scores so much less than the worst piece

}  // namespace

absl::StatusOr<Unigram> Unigram::Make(const Vocabulary& vocabulary, std::string_view scores, const BpeOptions& options) {
  Unigram made(vocabulary, scores, options);
  if (scores.size() != vocabulary.size() * sizeof(double)) return DataLoss("compiled tokenizer: not every piece has a score");
  if (options.unk == kNoPiece) return DataLoss("compiled tokenizer: there is no piece of what is unknown");
  double worst = 0;
  for (uint32_t piece = 0; piece < vocabulary.size(); ++piece) {
    if (!std::isfinite(made.Score(piece))) return DataLoss("compiled tokenizer: piece ", piece, " has no finite score");
    worst = std::min(worst, made.Score(piece));
    made.longest_piece_ = std::max(made.longest_piece_, vocabulary.piece(piece).size());
  }
  if (made.longest_piece_ > kLongestPiece) {
    return DataLoss("compiled tokenizer: a piece of ", made.longest_piece_, " bytes, at most ", kLongestPiece, " are allowed");
  }
  made.unknown_score_ = worst - kUnknownPenalty;
  return made;
}

double Unigram::Score(uint32_t piece) const {
  double score;
  std::memcpy(&score, scores_.data() + piece * sizeof(score), sizeof(score));
  return score;
}

// Of ways with the same score the first that is found stays: that with the earlier begin.
void Unigram::FindBestWay(std::string_view word, Scratch& scratch) const {
  scratch.nodes.assign(word.size() + 1, {});
  for (size_t begin = 0, character; begin < word.size(); begin += character) {
    character = FirstCharacterBytes(word.substr(begin));
    const double before = scratch.nodes[begin].score;
    const auto offer = [&](size_t bytes, uint32_t piece, double score) {
      Scratch::Node& node = scratch.nodes[begin + bytes];
      if (node.begin < 0 || before + score > node.score) node = {before + score, static_cast<int32_t>(begin), piece};
    };
    bool known = false;
    const size_t most = std::min(longest_piece_, word.size() - begin);
    for (size_t bytes = character; bytes <= most;) {
      if (const auto piece = vocabulary_.Find(word.substr(begin, bytes))) {
        offer(bytes, *piece, Score(*piece));
        known |= bytes == character;
      }
      if (begin + bytes == word.size()) break;
      bytes += FirstCharacterBytes(word.substr(begin + bytes));
    }
    if (!known) offer(character, options_.unk, unknown_score_);
  }
}

// Neighbouring unknown characters are one.
absl::Status Unigram::Append(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (word.size() > scratch.max_word_bytes) {
    return InvalidArgument("a stretch of ", word.size(), " bytes without a place to cut; at most ", scratch.max_word_bytes,
                           " can be tokenised");
  }
  FindBestWay(word, scratch);
  scratch.begins.clear();
  bool unknown = false;  // the piece that was added last
  for (auto end = static_cast<int32_t>(word.size()); end > 0;) {
    const Scratch::Node& node = scratch.nodes[static_cast<size_t>(end)];
    const bool joins = unknown && node.piece == options_.unk;
    if (joins) scratch.begins.pop_back();
    scratch.begins.push_back(node.begin);
    unknown = node.piece == options_.unk;
    end = node.begin;
  }
  for (size_t i = scratch.begins.size(); i-- > 0;) {
    const auto begin = static_cast<size_t>(scratch.begins[i]);
    const size_t end = i > 0 ? static_cast<size_t>(scratch.begins[i - 1]) : word.size();
    AppendPiece(word.substr(begin, end - begin), out);
  }
  return absl::OkStatus();
}

void Unigram::AppendPiece(std::string_view piece, std::vector<TokenId>& out) const {
  const auto add = [&](uint32_t id) { out.push_back(TokenId(static_cast<int32_t>(id))); };
  if (const auto known = vocabulary_.Find(piece)) return add(*known);
  const auto of_byte = [&](char byte) { return options_.byte_pieces[static_cast<uint8_t>(byte)]; };
  if (!options_.byte_fallback || !std::ranges::all_of(piece, [&](char byte) { return of_byte(byte) != kNoPiece; })) {
    return add(options_.unk);
  }
  for (const char byte : piece) add(of_byte(byte));
}

}  // namespace moed
