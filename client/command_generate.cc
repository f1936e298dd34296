#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "client/command.h"
#include "client/flag_values.h"
#include "client/shown.h"
#include "core/base/status.h"

namespace moed {
namespace {

struct AnswerFlags {
  GenerateFlags generate;
  std::string prompt;
  std::string prompt_file;
  std::vector<int> token_ids;
  std::string session;
  bool must_exist = false;
  int expected_tokens = -1;
  std::string request_id;
  int logprobs = -1;
  bool plain_special = false;
  bool no_special = false;
  bool show_special = false;
  bool json = false;
};

// Everything that came, put together.
struct Answer {
  std::string text;
  std::vector<int> token_ids;
  nlohmann::json logprobs = nlohmann::json::array();
  moe::v1::PromptInfo prompt;
  moe::v1::Finish finish;
};

// Pieces of characters are no UTF-8; JSON wants them as numbers.
nlohmann::json LogprobJson(const moe::v1::TokenLogprob& token) {
  nlohmann::json bytes = nlohmann::json::array();
  for (unsigned char c : token.token()) bytes.push_back(c);
  return {{"token_id", token.token_id()}, {"logprob", token.logprob()}, {"bytes", bytes}};
}

nlohmann::json ChosenJson(const moe::v1::TokenLogprob& token) {
  nlohmann::json json = LogprobJson(token), top = nlohmann::json::array();
  for (const auto& alternative : token.top()) top.push_back(LogprobJson(alternative));
  json["top"] = top;
  return json;
}

nlohmann::json StatsJson(const moe::v1::RequestStats& s) {
  return {{"queue_seconds", s.queue_seconds()},
          {"prefill_seconds", s.prefill_seconds()},
          {"decode_seconds", s.decode_seconds()},
          {"ttft_seconds", s.ttft_seconds()},
          {"tpot_seconds", s.tpot_seconds()},
          {"expert_hits", s.expert_hits()},
          {"expert_misses", s.expert_misses()},
          {"bytes_read", s.bytes_read()},
          {"stall_seconds", s.stall_seconds()},
          {"preemptions", s.preemptions()},
          {"experts_lowered", s.experts_lowered()},
          {"experts_skipped", s.experts_skipped()},
          {"experts_masked", s.experts_masked()},
          {"gate_mass_lost", s.gate_mass_lost()},
          {"choices_dropped", s.choices_dropped()},
          {"fast_matmul_tokens", s.fast_matmul_tokens()},
          {"lossy_cached_tokens", s.lossy_cached_tokens()}};
}

nlohmann::json AnswerJson(const Answer& answer, bool with_logprobs) {
  const auto& usage = answer.finish.usage();
  nlohmann::json json = {{"text", answer.text},
                         {"token_ids", answer.token_ids},
                         {"finish_reason", FinishName(answer.finish.reason())},
                         {"seed", answer.finish.seed()},
                         {"usage",
                          {{"prompt_tokens", usage.prompt_tokens()},
                           {"completion_tokens", usage.completion_tokens()},
                           {"cached_tokens", usage.cached_tokens()}}},
                         {"stats", StatsJson(answer.finish.stats())}};
  if (answer.finish.reason() == moe::v1::FINISH_REASON_STOP) json["stop_token_id"] = answer.finish.stop_token_id();
  if (answer.finish.reason() == moe::v1::FINISH_REASON_STOP_STRING) json["stop_string"] = answer.finish.stop_string();
  if (answer.finish.session_tokens() > 0) json["session_tokens"] = answer.finish.session_tokens();
  if (with_logprobs) json["logprobs"] = answer.logprobs;
  return json;
}

absl::StatusOr<moe::v1::GenerateRequest> MakeRequest(const AnswerFlags& flags) {
  const int given = !flags.prompt.empty() + !flags.prompt_file.empty() + !flags.token_ids.empty();
  if (given != 1) return UsageError("give one of --prompt, --prompt-file, --token-ids");
  moe::v1::GenerateRequest request;
  if (!flags.token_ids.empty()) {
    for (int id : flags.token_ids) request.mutable_token_ids()->add_ids(id);
  } else if (!flags.prompt_file.empty()) {
    MOED_ASSIGN_OR_RETURN(*request.mutable_text(), ReadWholeFile(flags.prompt_file));
  } else {
    request.set_text(flags.prompt);
  }
  MOED_RETURN_IF_ERROR(flags.generate.Apply(request));
  request.set_request_id(flags.request_id);
  request.set_session_id(flags.session);
  request.set_must_exist(flags.must_exist);
  if (flags.expected_tokens >= 0) request.set_expected_tokens(flags.expected_tokens);
  if (flags.plain_special) request.mutable_tokenize()->set_parse_special_tokens(false);
  if (flags.no_special) request.mutable_tokenize()->set_add_special_tokens(false);
  if (flags.show_special) request.mutable_response()->set_skip_special_tokens(false);
  if (flags.logprobs >= 0) {
    request.mutable_response()->set_logprobs(true);
    request.mutable_response()->set_top_logprobs(flags.logprobs);
  }
  return request;
}

absl::Status RunGenerate(const AnswerFlags& flags, const moe::v1::GenerateRequest& request, CommandContext& context) {
  Answer answer;
  const absl::Status status = context.client.GenerateStream(
      request,
      [&](const moe::v1::GenerateResponse& part) {
        if (!flags.json) {
          const std::string text = TextOn(stdout, part.text());
          std::fwrite(text.data(), 1, text.size(), stdout);
          std::fflush(stdout);
        }
        answer.text += part.text();
        answer.token_ids.insert(answer.token_ids.end(), part.token_ids().begin(), part.token_ids().end());
        for (const auto& token : part.logprobs()) answer.logprobs.push_back(ChosenJson(token));
        if (part.has_finish()) answer.finish = part.finish();
        return true;
      },
      &context.cancellation);
  if (!flags.json) std::printf("\n");
  MOED_RETURN_IF_ERROR(status);
  if (flags.json) {
    std::printf("%s\n", AnswerJson(answer, flags.logprobs >= 0).dump().c_str());
  } else {
    std::fflush(stdout);
    std::fputs("\n", stderr);
    PrintSummary(answer.finish);
  }
  return absl::OkStatus();
}

}  // namespace

CommandRun DefineGenerate(CLI::App& app) {
  auto flags = std::make_shared<AnswerFlags>();
  auto request = std::make_shared<moe::v1::GenerateRequest>();
  app.add_option("--prompt,-p", flags->prompt, "text to continue");
  app.add_option("--prompt-file", flags->prompt_file, "file with the text to continue; - is standard input");
  app.add_option("--token-ids", flags->token_ids, "prompt as token ids, comma-separated; nothing is added")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(AtLeast(0));
  flags->generate.Define(app);
  app.add_option("--session", flags->session, "continue (or begin) the conversation of this name");
  app.add_flag("--must-exist", flags->must_exist, "fail where the conversation is not kept any more");
  app.add_option("--expected-tokens", flags->expected_tokens,
                 "fail where the conversation holds another number of tokens than this (session_tokens of the last answer)")
      ->transform(AtLeast(0));
  app.add_option("--request-id", flags->request_id, "name of this request in logs and for abort");
  app.add_option("--logprobs", flags->logprobs, "log probabilities of the chosen tokens and of N alternatives; with --json")
      ->transform(Between(0, 20));
  app.add_flag("--plain-special", flags->plain_special,
               "special tokens written in the prompt are plain text (for text from strangers)");
  app.add_flag("--no-added-tokens", flags->no_special, "do not add BOS or EOS to the prompt");
  app.add_flag("--show-special", flags->show_special, "print special tokens of the answer");
  app.add_flag("--json", flags->json,
               "one JSON object at the end instead of the stream: text, token_ids, finish_reason, usage, stats");
  return {[flags, request]() -> absl::Status {
            MOED_ASSIGN_OR_RETURN(*request, MakeRequest(*flags));
            return absl::OkStatus();
          },
          [flags, request](CommandContext& context) { return RunGenerate(*flags, *request, context); }};
}

}  // namespace moed
