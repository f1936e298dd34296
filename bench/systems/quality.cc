#include "bench/systems/quality.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/base/status.h"

namespace moed {
namespace {

constexpr int kAlternatives = 20;
constexpr size_t kWindowTokens = 64;
constexpr int kWarmUpPromptTokens = 64, kWarmUpAnswerTokens = 64;
constexpr double kLeastMass = 1e-9;  // of the bucket, whose mass is a difference of sums

absl::StatusOr<moe::v1::ScoreResponse> ScoreWindow(Client& client, const Contender& contender, const std::vector<int>& ids,
                                                   size_t begin, size_t end) {
  moe::v1::ScoreRequest request;
  for (size_t i = begin; i < end; ++i) request.mutable_token_ids()->add_ids(ids[i]);
  request.set_top_logprobs(kAlternatives);
  if (contender.fidelity) *request.mutable_fidelity() = *contender.fidelity;
  return client.Score(request);
}

absl::Status WarmUp(Client& client, const SystemsBench& bench, const Contender& contender) {
  moe::v1::GenerateRequest request;
  for (int id : PromptOf(bench.prompts.front(), kWarmUpPromptTokens, 0)) request.mutable_token_ids()->add_ids(id);
  request.mutable_stopping()->set_max_new_tokens(kWarmUpAnswerTokens);
  request.mutable_stopping()->set_ignore_eos(true);
  if (contender.fidelity) *request.mutable_fidelity() = *contender.fidelity;
  return client.Generate(request).status();
}

ScoredWindow WindowOf(const moe::v1::ScoreResponse& response) {
  ScoredWindow window{{response.logprobs().begin(), response.logprobs().end()}, {}, {}};
  for (const moe::v1::Alternatives& top : response.top()) {
    auto& alternatives = window.top.emplace_back();
    for (int i = 0; i < top.token_ids_size(); ++i) alternatives[top.token_ids(i)] = top.logprobs(i);
    window.best.push_back(top.token_ids_size() > 0 ? top.token_ids(0) : -1);
  }
  return window;
}

}  // namespace

absl::StatusOr<ScoredText> ScoreText(const SystemsBench& bench, const Contender& contender, const Cell& cell, ScoredAs as,
                                     double seconds) {
  const size_t step = as == ScoredAs::kAnswers ? 1 : kWindowTokens;
  MOED_ASSIGN_OR_RETURN(const auto daemon, bench.StartDaemon(contender, cell, {"--prefill-chunk", StrCat(step)}));
  MOED_RETURN_IF_ERROR(WarmUp(daemon->client(), bench, contender));
  const std::vector<int>& ids = bench.quality_ids;
  const auto start = std::chrono::steady_clock::now();
  ScoredText text;
  double tokens = 0;
  for (size_t begin = 0; begin + 1 < ids.size(); begin += kWindowTokens) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (begin > 0 && passed.count() > seconds) break;
    const size_t end = std::min(ids.size(), begin + kWindowTokens);
    MOED_ASSIGN_OR_RETURN(const moe::v1::ScoreResponse response, ScoreWindow(daemon->client(), contender, ids, begin, end));
    text.windows.push_back(WindowOf(response));
    const auto scored = static_cast<double>(end - begin - 1);
    text.gate_mass_lost += response.stats().gate_mass_lost() * scored;
    tokens += scored;
  }
  text.gate_mass_lost /= std::max(tokens, 1.0);
  return text;
}

double BucketedDivergence(const std::map<int, float>& exact, const std::map<int, float>& lossy) {
  double divergence = 0, exact_rest = 1, lossy_rest = 1;
  for (const auto& [token, logprob] : exact) {
    const auto found = lossy.find(token);
    if (found == lossy.end()) continue;
    const double p = std::exp(logprob);
    divergence += p * (logprob - found->second);
    exact_rest -= p;
    lossy_rest -= std::exp(found->second);
  }
  exact_rest = std::max(exact_rest, kLeastMass);
  lossy_rest = std::max(lossy_rest, kLeastMass);
  return divergence + exact_rest * std::log(exact_rest / lossy_rest);
}

Figures CompareQuality(const ScoredText& exact, const ScoredText& lossy) {
  double exact_nll = 0, lossy_nll = 0, divergence = 0, agreed = 0, tokens = 0;
  for (size_t w = 0; w < std::min(exact.windows.size(), lossy.windows.size()); ++w) {
    const ScoredWindow& a = exact.windows[w];
    const ScoredWindow& b = lossy.windows[w];
    for (size_t i = 0; i < std::min(a.logprobs.size(), b.logprobs.size()); ++i) {
      exact_nll -= a.logprobs[i];
      lossy_nll -= b.logprobs[i];
      agreed += a.best[i] == b.best[i] ? 1 : 0;
      divergence += BucketedDivergence(a.top[i], b.top[i]);
      ++tokens;
    }
  }
  if (tokens == 0) return {};
  return {{"perplexity", std::exp(lossy_nll / tokens)},
          {"exact_perplexity", std::exp(exact_nll / tokens)},
          {"perplexity_ratio", std::exp((lossy_nll - exact_nll) / tokens)},
          {"top1_agreement", agreed / tokens},
          {"kl", divergence / tokens},
          {"scored_tokens", tokens},
          {"quality_gate_mass_lost", lossy.gate_mass_lost}};
}

}  // namespace moed
