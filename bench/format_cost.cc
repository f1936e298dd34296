// What it costs a token that an answer must be of a format: its mask, and following the text.
//
//   format_cost tokenizer.json --answers 20
//
// Answers are drawn from the masks alone, each with a matcher of its own, as a request has. A figure is microseconds on one core.
#include <bit>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "core/base/status.h"
#include "core/grammar/matcher_pool.h"

namespace moed::grammar {
namespace {

struct Case {
  const char* name;
  TextFormat format;
};

const std::vector<Case>& Cases() {
  using Kind = TextFormat::Kind;
  static const std::vector<Case> kCases = {
      {"any object", {Kind::kJsonObject, ""}},
      {"a person",
       {Kind::kJsonSchema,
        R"({"properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 130},
         "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}}, "kind": {"enum": ["a", "b", "c"]}},
         "required": ["name", "age", "tags", "kind"]})"}},
      {"a tree",
       {Kind::kJsonSchema, R"({"properties": {"value": {"type": "number"}, "children": {"type": "array", "items": {"$ref": "#"}}},
         "required": ["value", "children"]})"}},
      {"a date and words", {Kind::kRegex, "(19|20)\\d{2}-(0[1-9]|1[0-2])-[0-3]\\d: ([a-zà-ö]{1,12} ){3,20}[.!?]"}},
  };
  return kCases;
}

struct Cost {
  int tokens = 0;
  double seconds = 0;
  double slowest = 0;  // token
};

double Since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// One of the allowed tokens; -1 where only the end is.
int32_t Drawn(std::span<const uint64_t> allowed, std::mt19937& random) {
  size_t count = 0;
  for (const uint64_t word : allowed) count += std::popcount(word);
  if (count == 0) return -1;
  size_t left = random() % count;
  for (size_t word = 0;; ++word) {
    const size_t here = std::popcount(allowed[word]);
    if (left >= here) {
      left -= here;
      continue;
    }
    uint64_t bits = allowed[word];
    for (; left > 0; --left) bits &= bits - 1;
    return static_cast<int32_t>(word * 64 + std::countr_zero(bits));
  }
}

absl::Status Answer(const Tokenizer& tokenizer, Matcher& matcher, std::mt19937& random, Cost& cost) {
  constexpr int kMostTokens = 200;
  for (int i = 0; i < kMostTokens; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    MOED_ASSIGN_OR_RETURN(const std::span<const uint64_t> allowed, matcher.Allowed());
    double seconds = Since(begin);
    const int32_t token = Drawn(allowed, random);
    if (token < 0) break;
    const std::string bytes = tokenizer.TokenBytes(TokenId(token));
    const auto chosen = std::chrono::steady_clock::now();
    MOED_RETURN_IF_ERROR(matcher.Accept(bytes));
    seconds += Since(chosen);
    ++cost.tokens;
    cost.seconds += seconds;
    cost.slowest = std::max(cost.slowest, seconds);
  }
  return absl::OkStatus();
}

absl::Status Measure(const std::string& file, int answers) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  MOED_ASSIGN_OR_RETURN(std::string blob, CompileTokenizer(text.str()));
  MOED_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::FromBlob(std::move(blob)));
  const auto begin = std::chrono::steady_clock::now();
  const VocabularyTrie trie(*tokenizer, tokenizer->vocabulary_size());
  std::printf("%d tokens: a tree of %.1f MiB in %.0f ms\n", tokenizer->vocabulary_size(),
              static_cast<double>(trie.bytes()) / (1 << 20), 1e3 * Since(begin));
  MatcherPool pool(*tokenizer, tokenizer->vocabulary_size(), uint64_t{1} << 30);
  std::printf("%-18s %10s %12s %12s %10s\n", "format", "compile", "mean/token", "slowest", "tokens");
  for (const Case& one : Cases()) {
    std::mt19937 random(3);
    Cost cost;
    double compile = 0;
    for (int i = 0; i < answers; ++i) {
      const auto before = std::chrono::steady_clock::now();
      MOED_ASSIGN_OR_RETURN(const auto matcher, pool.Make(*SyntaxOf(one.format)));
      compile += Since(before);
      MOED_RETURN_IF_ERROR(Answer(*tokenizer, *matcher, random, cost));
    }
    std::printf("%-18s %7.0f us %9.1f us %9.0f us %10d\n", one.name, 1e6 * compile / answers, 1e6 * cost.seconds / cost.tokens,
                1e6 * cost.slowest, cost.tokens);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace moed::grammar

int main(int argc, char** argv) {
  CLI::App app("What it costs a token that an answer must be of a format");
  std::string tokenizer;
  int answers = 20;
  app.add_option("tokenizer", tokenizer, "tokenizer.json")->required();
  app.add_option("--answers", answers, "of each format")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = moed::grammar::Measure(tokenizer, answers);
  if (!status.ok()) std::cerr << "format_cost: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
