#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "client/command.h"
#include "client/flag_values.h"
#include "core/base/status.h"

namespace moed {
namespace {

struct ScoreFlags {
  std::string file;
  std::string text;
  std::vector<int> token_ids;
  std::string source;
  std::string source_file;
  std::vector<int> source_token_ids;
  bool has_source() const { return !source.empty() || !source_file.empty() || !source_token_ids.empty(); }
  int window = 256;
  std::string fidelity;
  bool json = false;
  moe::v1::ScoreRequest form;  // what all windows share
};

struct TokenizeFlags {
  std::string file;
  std::string text;
  bool json = false;
  bool plain_special = false;
  bool add_special = false;
};

// Into `text`, where a file is given.
absl::Status ReadInto(std::string& text, const std::string& file) {
  if (file.empty()) return absl::OkStatus();
  MOED_ASSIGN_OR_RETURN(text, ReadWholeFile(file));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> TokensOf(Client& client, const std::string& text, bool add_special, bool parse_special) {
  moe::v1::TokenizeRequest request;
  request.set_text(text);
  request.mutable_options()->set_add_special_tokens(add_special);
  request.mutable_options()->set_parse_special_tokens(parse_special);
  MOED_ASSIGN_OR_RETURN(const moe::v1::TokenizeResponse response, client.Tokenize(request));
  return std::vector<int>(response.token_ids().begin(), response.token_ids().end());
}

// What was scored together.
struct Scored {
  double nll = 0;
  std::vector<int> ids;         // of a target
  std::vector<float> logprobs;  // one for each scored token
  moe::v1::RequestStats lost;
  moe::v1::Usage usage;  // of a source

  int64_t tokens() const { return static_cast<int64_t>(logprobs.size()); }
  // gate_mass_lost is the sum over the tokens, until all are there.
  void Add(const moe::v1::ScoreResponse& response) {
    const moe::v1::RequestStats& stats = response.stats();
    nll += response.nll();
    logprobs.insert(logprobs.end(), response.logprobs().begin(), response.logprobs().end());
    lost.set_experts_lowered(lost.experts_lowered() + stats.experts_lowered());
    lost.set_experts_skipped(lost.experts_skipped() + stats.experts_skipped());
    lost.set_experts_masked(lost.experts_masked() + stats.experts_masked());
    lost.set_choices_dropped(lost.choices_dropped() + stats.choices_dropped());
    lost.set_fast_matmul_tokens(lost.fast_matmul_tokens() + stats.fast_matmul_tokens());
    lost.set_lossy_cached_tokens(lost.lossy_cached_tokens() + stats.lossy_cached_tokens());
    lost.set_gate_mass_lost(lost.gate_mass_lost() + stats.gate_mass_lost() * response.logprobs_size());
  }
};

absl::StatusOr<Scored> ScoreWindows(const ScoreFlags& flags, CommandContext& context) {
  std::vector<int> ids = flags.token_ids;
  if (ids.empty()) {
    MOED_ASSIGN_OR_RETURN(ids, TokensOf(context.client, flags.text, false, true));
  }
  const bool progress = isatty(STDERR_FILENO) != 0;
  Scored scored;
  for (size_t begin = 0; begin + 1 < ids.size(); begin += static_cast<size_t>(flags.window)) {
    const size_t end = std::min(ids.size(), begin + static_cast<size_t>(flags.window));
    if (end - begin < 2) break;  // a lone last token has nothing before it
    moe::v1::ScoreRequest request = flags.form;
    for (size_t i = begin; i < end; ++i) request.mutable_token_ids()->add_ids(ids[i]);
    MOED_ASSIGN_OR_RETURN(const moe::v1::ScoreResponse response, context.client.Score(request, &context.cancellation));
    scored.Add(response);
    if (progress) {
      std::fprintf(stderr, "\r%zu of %zu tokens, perplexity so far %.3f ", end, ids.size(),
                   std::exp(scored.nll / static_cast<double>(scored.tokens())));
    }
  }
  if (progress) std::fprintf(stderr, "\n");
  if (scored.tokens() == 0) return InvalidArgument("the text has ", ids.size(), " token(s): scoring needs at least 2");
  return scored;
}

absl::StatusOr<Scored> ScoreTarget(const ScoreFlags& flags, CommandContext& context) {
  moe::v1::ScoreRequest request = flags.form;
  if (!flags.source_token_ids.empty()) {
    for (int id : flags.source_token_ids) request.mutable_token_ids()->add_ids(id);
  } else {
    request.set_text(flags.source);
  }
  if (!flags.token_ids.empty()) {
    for (int id : flags.token_ids) request.mutable_target_token_ids()->add_ids(id);
  } else {
    request.set_target_text(flags.text);
  }
  MOED_ASSIGN_OR_RETURN(const moe::v1::ScoreResponse response, context.client.Score(request, &context.cancellation));
  Scored scored{.ids = {response.token_ids().begin(), response.token_ids().end()}, .usage = response.usage()};
  scored.Add(response);
  return scored;
}

void Print(const Scored& scored, const ScoreFlags& flags) {
  const double perplexity = std::exp(scored.nll / static_cast<double>(scored.tokens()));
  if (!flags.json) {
    std::printf("%lld tokens scored, nll %.4f, %.5f nats a token, perplexity %.4f | %s\n",
                static_cast<long long>(scored.tokens()), scored.nll, scored.nll / static_cast<double>(scored.tokens()),
                perplexity, LossText(scored.lost).c_str());
    return;
  }
  nlohmann::json out{{"tokens", scored.tokens()},
                     {"nll", scored.nll},
                     {"perplexity", perplexity},
                     {"experts_lowered", scored.lost.experts_lowered()},
                     {"experts_skipped", scored.lost.experts_skipped()},
                     {"experts_masked", scored.lost.experts_masked()},
                     {"gate_mass_lost", scored.lost.gate_mass_lost()},
                     {"fast_matmul_tokens", scored.lost.fast_matmul_tokens()},
                     {"lossy_cached_tokens", scored.lost.lossy_cached_tokens()}};
  if (flags.has_source()) {
    out["token_ids"] = scored.ids;
    out["logprobs"] = scored.logprobs;
    out["choices_dropped"] = scored.lost.choices_dropped();
    out["source_tokens"] = scored.usage.prompt_tokens();
    out["cached_tokens"] = scored.usage.cached_tokens();
  }
  std::printf("%s\n", out.dump().c_str());
}

absl::Status PrepareScore(ScoreFlags& flags) {
  if (!flags.token_ids.empty() + !flags.file.empty() + !flags.text.empty() != 1) {
    return UsageError("give one of --file, --text, --token-ids");
  }
  if (!flags.source_token_ids.empty() + !flags.source_file.empty() + !flags.source.empty() > 1) {
    return UsageError("give at most one of --source, --source-file, --source-token-ids");
  }
  MOED_ASSIGN_OR_RETURN(const auto fidelity, AsUsage(FidelityOfFlag(flags.fidelity)));
  if (fidelity) *flags.form.mutable_fidelity() = *fidelity;
  MOED_RETURN_IF_ERROR(ReadInto(flags.source, flags.source_file));
  return ReadInto(flags.text, flags.file);
}

absl::Status RunScore(const ScoreFlags& flags, CommandContext& context) {
  MOED_ASSIGN_OR_RETURN(Scored scored, flags.has_source() ? ScoreTarget(flags, context) : ScoreWindows(flags, context));
  scored.lost.set_gate_mass_lost(scored.lost.gate_mass_lost() / static_cast<double>(scored.tokens()));
  Print(scored, flags);
  return absl::OkStatus();
}

absl::Status PrepareTokenize(TokenizeFlags& flags) {
  if (flags.file.empty() == flags.text.empty()) return UsageError("give one of --file, --text");
  return ReadInto(flags.text, flags.file);
}

absl::Status RunTokenize(const TokenizeFlags& flags, CommandContext& context) {
  MOED_ASSIGN_OR_RETURN(const std::vector<int> ids,
                        TokensOf(context.client, flags.text, flags.add_special, !flags.plain_special));
  if (flags.json) {
    std::printf("%s\n", nlohmann::json{{"token_ids", ids}}.dump().c_str());
  } else {
    for (size_t i = 0; i < ids.size(); ++i) std::printf("%s%d", i == 0 ? "" : " ", ids[i]);
    std::printf("\n");
  }
  return absl::OkStatus();
}

}  // namespace

CommandRun DefineScore(CLI::App& app) {
  auto flags = std::make_shared<ScoreFlags>();
  app.add_option("--file,-f", flags->file, "text file to score; - is standard input");
  app.add_option("--text", flags->text, "text to score");
  app.add_option("--token-ids", flags->token_ids, "token ids to score, comma-separated; nothing is added")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(AtLeast(0));
  app.add_option("--source", flags->source,
                 "text that is answered by what is scored: of encoder-decoders, and the prefix of prefix-LMs");
  app.add_option("--source-file", flags->source_file, "the same, of a file");
  app.add_option("--source-token-ids", flags->source_token_ids, "the same as token ids, comma-separated; nothing is added")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(AtLeast(0));
  app.add_option("--window", flags->window,
                 "without a source, tokens scored together; the text is cut into consecutive windows, tokens 2..N of each count")
      ->transform(Between(2, 1 << 20))
      ->capture_default_str();
  app.add_option("--fidelity", flags->fidelity, kFidelityHelp);
  app.add_flag("--json", flags->json,
               "JSON: tokens, nll, perplexity and what was lost; with a source also token_ids and their logprobs");
  return {[flags] { return PrepareScore(*flags); }, [flags](CommandContext& context) { return RunScore(*flags, context); }};
}

CommandRun DefineTokenize(CLI::App& app) {
  auto flags = std::make_shared<TokenizeFlags>();
  app.add_option("--file,-f", flags->file, "text file; - is standard input");
  app.add_option("--text", flags->text, "text");
  app.add_flag("--plain-special", flags->plain_special, "special tokens written in the text are plain text");
  app.add_flag("--add-special", flags->add_special, "add BOS and EOS as the tokenizer's post-processor says");
  app.add_flag("--json", flags->json, "JSON: token_ids");
  return {[flags] { return PrepareTokenize(*flags); }, [flags](CommandContext& context) { return RunTokenize(*flags, context); }};
}

}  // namespace moed
