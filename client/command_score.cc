#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "client/command.h"
#include "core/base/status.h"

namespace moed {
namespace {

struct ScoreFlags {
  std::string file;
  std::string text;
  int window = 256;
  std::string fidelity;
  bool json = false;
};

struct TokenizeFlags {
  std::string file;
  std::string text;
  bool json = false;
  bool plain_special = false;
  bool add_special = false;
};

absl::StatusOr<std::string> TextOf(const std::string& file, const std::string& text) {
  if (file.empty() == text.empty()) return InvalidArgument("give one of --file, --text");
  if (!file.empty()) return ReadWholeFile(file);
  return text;
}

absl::StatusOr<std::vector<int>> TokensOf(Client& client, const std::string& text, bool add_special, bool parse_special) {
  moe::v1::TokenizeRequest request;
  request.set_text(text);
  request.mutable_options()->set_add_special_tokens(add_special);
  request.mutable_options()->set_parse_special_tokens(parse_special);
  MOED_ASSIGN_OR_RETURN(const moe::v1::TokenizeResponse response, client.Tokenize(request));
  return std::vector<int>(response.token_ids().begin(), response.token_ids().end());
}

absl::Status RunScore(const ScoreFlags& flags, CommandContext& context) {
  MOED_ASSIGN_OR_RETURN(const std::string text, TextOf(flags.file, flags.text));
  MOED_ASSIGN_OR_RETURN(const std::vector<int> ids, TokensOf(context.client, text, false, true));
  MOED_ASSIGN_OR_RETURN(const auto fidelity, ParseFidelity(flags.fidelity));
  const bool progress = isatty(STDERR_FILENO) != 0;
  double nll = 0;
  moe::v1::RequestStats lost;
  int64_t counted = 0;
  for (size_t begin = 0; begin + 1 < ids.size(); begin += static_cast<size_t>(flags.window)) {
    const size_t end = std::min(ids.size(), begin + static_cast<size_t>(flags.window));
    if (end - begin < 2) break;  // a lone last token has nothing before it
    moe::v1::ScoreRequest request;
    if (fidelity) *request.mutable_fidelity() = *fidelity;
    for (size_t i = begin; i < end; ++i) request.mutable_token_ids()->add_ids(ids[i]);
    MOED_ASSIGN_OR_RETURN(const moe::v1::ScoreResponse response, context.client.Score(request, &context.cancellation));
    nll += response.nll();
    counted += response.logprobs_size();
    lost.set_experts_lowered(lost.experts_lowered() + response.stats().experts_lowered());
    lost.set_experts_skipped(lost.experts_skipped() + response.stats().experts_skipped());
    lost.set_experts_masked(lost.experts_masked() + response.stats().experts_masked());
    lost.set_fast_matmul_tokens(lost.fast_matmul_tokens() + response.stats().fast_matmul_tokens());
    lost.set_gate_mass_lost(lost.gate_mass_lost() + response.stats().gate_mass_lost() * static_cast<double>(end - begin - 1));
    if (progress) {
      std::fprintf(stderr, "\r%zu of %zu tokens, perplexity so far %.3f ", end, ids.size(),
                   std::exp(nll / static_cast<double>(counted)));
    }
  }
  if (progress) std::fprintf(stderr, "\n");
  if (counted == 0) return InvalidArgument("the text has ", ids.size(), " token(s): scoring needs at least 2");
  lost.set_gate_mass_lost(lost.gate_mass_lost() / static_cast<double>(counted));
  const double perplexity = std::exp(nll / static_cast<double>(counted));
  if (flags.json) {
    std::printf("%s\n", nlohmann::json{{"tokens", counted},
                                       {"nll", nll},
                                       {"perplexity", perplexity},
                                       {"experts_lowered", lost.experts_lowered()},
                                       {"experts_skipped", lost.experts_skipped()},
                                       {"experts_masked", lost.experts_masked()},
                                       {"gate_mass_lost", lost.gate_mass_lost()},
                                       {"fast_matmul_tokens", lost.fast_matmul_tokens()}}
                            .dump()
                            .c_str());
  } else {
    std::printf("%lld tokens scored, nll %.4f, %.5f nats a token, perplexity %.4f | %s\n", static_cast<long long>(counted), nll,
                nll / static_cast<double>(counted), perplexity, LossText(lost).c_str());
  }
  return absl::OkStatus();
}

absl::Status RunTokenize(const TokenizeFlags& flags, CommandContext& context) {
  MOED_ASSIGN_OR_RETURN(const std::string text, TextOf(flags.file, flags.text));
  MOED_ASSIGN_OR_RETURN(const std::vector<int> ids, TokensOf(context.client, text, flags.add_special, !flags.plain_special));
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
  app.add_option("--window", flags->window,
                 "tokens scored together; the text is cut into consecutive windows, tokens 2..N of each count")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_option("--fidelity", flags->fidelity, kFidelityHelp);
  app.add_flag("--json", flags->json, "JSON: tokens, nll, perplexity and what was lost");
  return [flags](CommandContext& context) { return RunScore(*flags, context); };
}

CommandRun DefineTokenize(CLI::App& app) {
  auto flags = std::make_shared<TokenizeFlags>();
  app.add_option("--file,-f", flags->file, "text file; - is standard input");
  app.add_option("--text", flags->text, "text");
  app.add_flag("--plain-special", flags->plain_special, "special tokens written in the text are plain text");
  app.add_flag("--add-special", flags->add_special, "add BOS and EOS as the tokenizer's post-processor says");
  app.add_flag("--json", flags->json, "JSON: token_ids");
  return [flags](CommandContext& context) { return RunTokenize(*flags, context); };
}

}  // namespace moed
