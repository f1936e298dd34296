#include "client/command.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/flag_values.h"
#include "client/shown.h"
#include "core/base/byte_size.h"
#include "core/base/retry_after.h"
#include "core/base/status.h"
#include "proto/duration.h"

namespace moed {
namespace {

constexpr char kUsagePayload[] = "moectl/usage";
constexpr char kPartlyPayload[] = "moectl/partly";

bool IsUsage(const absl::Status& status) { return status.GetPayload(kUsagePayload).has_value(); }
bool IsPartly(const absl::Status& status) { return status.GetPayload(kPartlyPayload).has_value(); }

}  // namespace

absl::Status AsUsage(absl::Status status) {
  if (!status.ok()) status.SetPayload(kUsagePayload, absl::Cord());
  return status;
}

absl::Status PartlyFailed(std::string_view what) {
  absl::Status status = absl::UnknownError(ToAbsl(what));
  status.SetPayload(kPartlyPayload, absl::Cord());
  return status;
}

std::string ErrorText(const absl::Status& status) {
  const std::string text = TextOn(stderr, std::string_view(status.message().data(), status.message().size()));
  return IsUsage(status) || IsPartly(status) ? text : StrCat(absl::StatusCodeToString(status.code()), ": ", text);
}

int ExitCodeFor(const absl::Status& status) {
  if (IsUsage(status)) return kExitUsage;
  if (IsPartly(status)) return kExitPartly;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kUnavailable:
      return kExitNoServer;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kOutOfRange:
      return kExitInvalid;
    case absl::StatusCode::kResourceExhausted:
      return RetryAfterOf(status) ? kExitBusy : kExitInvalid;
    case absl::StatusCode::kAborted:
      return kExitBusy;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitDeadline;
    case absl::StatusCode::kCancelled:
      return kExitCancelled;
    default:
      return kExitFailed;
  }
}

namespace {

template <class Message, class Value>
void Optional(CLI::App& app, const std::string& flag, Message* message, void (Message::*set)(Value), const std::string& help,
              const CLI::Validator& values) {
  app.add_option_function<Value>(
         flag, [message, set](const Value& value) { (message->*set)(value); }, help)
      ->transform(values);
}

struct PriorityName {
  const char* name;
  moe::v1::Priority priority;
};
constexpr PriorityName kPriorities[] = {
    {"high", moe::v1::PRIORITY_HIGH}, {"normal", moe::v1::PRIORITY_NORMAL}, {"low", moe::v1::PRIORITY_LOW}};

void DefinePriority(CLI::App& app, moe::v1::Priority& priority) {
  std::vector<std::string> names;
  for (const PriorityName& row : kPriorities) names.emplace_back(row.name);
  app.add_option_function<std::string>(
         "--priority",
         [&priority](const std::string& name) {
           for (const PriorityName& row : kPriorities) {
             if (name == row.name) priority = row.priority;
           }
         },
         "beside other requests of the same token's name")
      ->transform(OneOf(names));
}

absl::Status AddLogitBias(const std::string& entry, moe::v1::Sampling& sampling) {
  const size_t equals = std::min(entry.find('='), entry.size());
  const auto id = ParseNumber<int32_t>(std::string_view(entry).substr(0, equals));
  const auto bias = ParseNumber<float>(std::string_view(entry).substr(std::min(equals + 1, entry.size())));
  if (!id || !bias) return UsageError("--logit-bias '", entry, "': expected ID=BIAS, for example 17=-2.5");
  if (sampling.mutable_logit_bias()->insert({*id, *bias}).second) return absl::OkStatus();
  return UsageError("--logit-bias '", entry, "': the token stands twice");
}

}  // namespace

void GenerateFlags::Define(CLI::App& app) {
  using moe::v1::Sampling;
  using moe::v1::Stopping;
  Optional(app, "--max-new-tokens", &stopping, &Stopping::set_max_new_tokens,
           "most tokens to generate (default: what the context leaves, or the server's --max-new-tokens)", AtLeast(1));
  Optional(app, "--min-new-tokens", &stopping, &Stopping::set_min_new_tokens,
           "neither end of sequence nor stop string ends the answer before so many tokens; default 0, at most --max-new-tokens",
           AtLeast(0));
  Optional(app, "--temperature", &sampling, &Sampling::set_temperature, "0 = greedy; default 1", AnyNumber());
  Optional(app, "--top-k", &sampling, &Sampling::set_top_k, "sample among the k most probable; 0 = all", AtLeast(0));
  Optional(app, "--top-p", &sampling, &Sampling::set_top_p, "nucleus sampling, [0, 1]; 0 = greedy", AnyNumber());
  Optional(app, "--min-p", &sampling, &Sampling::set_min_p, "drop tokens below min-p times the highest probability, [0, 1]",
           AnyNumber());
  Optional(app, "--repetition-penalty", &sampling, &Sampling::set_repetition_penalty, "> 0; 1 = off", AnyNumber());
  Optional(app, "--frequency-penalty", &sampling, &Sampling::set_frequency_penalty, "[-2, 2]", AnyNumber());
  Optional(app, "--presence-penalty", &sampling, &Sampling::set_presence_penalty, "[-2, 2]", AnyNumber());
  Optional(app, "--seed", &sampling, &Sampling::set_seed, "same seed, same tokens", AtLeast<uint64_t>(0));
  app.add_option("--logit-bias", logit_bias, "ID=BIAS, may be repeated");
  app.add_option_function<std::vector<std::string>>(
      "--stop",
      [this](const std::vector<std::string>& stops) {
        for (const auto& s : stops) stopping.add_stop_strings(s);
      },
      "end before this string, may be repeated");
  app.add_option_function<std::vector<int>>(
         "--stop-token-id",
         [this](const std::vector<int>& ids) {
           for (int id : ids) stopping.add_stop_token_ids(id);
         },
         "end at this token, may be repeated")
      ->transform(AtLeast(0));
  app.add_flag_callback(
      "--include-stop-string", [this] { stopping.set_include_stop_string(true); }, "keep the stop string in the text");
  app.add_flag_callback(
      "--ignore-eos", [this] { stopping.set_ignore_eos(true); }, "go on at the end of sequence");
  app.add_option("--time-limit", time_limit_seconds, "seconds after which the text so far is the answer")->transform(Positive());
  app.add_option("--fidelity", fidelity, kFidelityHelp);
  DefinePriority(app, priority);
  auto* format = app.add_option_group("format", "what the text must be")->require_option(0, 1);
  format->add_option("--json-schema", json_schema, "FILE ('-' = standard input): JSON that this schema accepts");
  format->add_option("--regex", regex, "what this regular expression matches, as a whole");
  format->add_flag("--json-object", json_object, "any JSON object");
}

absl::Status GenerateFlags::Apply(moe::v1::GenerateRequest& request) const {
  MOED_ASSIGN_OR_RETURN(const auto wanted, AsUsage(FidelityOfFlag(fidelity)));
  if (wanted) *request.mutable_fidelity() = *wanted;
  request.set_priority(priority);
  *request.mutable_sampling() = sampling;
  *request.mutable_stopping() = stopping;
  if (!json_schema.empty()) {
    MOED_ASSIGN_OR_RETURN(*request.mutable_format()->mutable_json_schema(), ReadWholeFile(json_schema));
  }
  if (!regex.empty()) request.mutable_format()->set_regex(regex);
  if (json_object) request.mutable_format()->set_json_object(true);
  for (const std::string& entry : logit_bias) MOED_RETURN_IF_ERROR(AddLogitBias(entry, *request.mutable_sampling()));
  if (time_limit_seconds > 0) *request.mutable_stopping()->mutable_time_limit() = DurationOf(time_limit_seconds);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  std::ostringstream contents;
  if (path == "-") {
    contents << std::cin.rdbuf();
    return contents.str();
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return UsageError("cannot read '", path, "': it is a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) return UsageError("cannot read '", path, "': ", std::string(std::strerror(errno)));
  contents << file.rdbuf();
  if (file.bad()) return UsageError("cannot read '", path, "'");
  return contents.str();
}

std::string FinishName(moe::v1::FinishReason reason) {
  switch (reason) {
    case moe::v1::FINISH_REASON_STOP:
      return "stop";
    case moe::v1::FINISH_REASON_STOP_STRING:
      return "stop_string";
    case moe::v1::FINISH_REASON_LENGTH:
      return "length";
    case moe::v1::FINISH_REASON_TIME_LIMIT:
      return "time_limit";
    case moe::v1::FINISH_REASON_TOOL_CALLS:
      return "tool_calls";
    case moe::v1::FINISH_REASON_CONTEXT:
      return "context";
    default:
      return "unspecified";
  }
}

void PrintSummary(const moe::v1::Finish& finish) {
  const auto& s = finish.stats();
  const double lookups = static_cast<double>(s.expert_hits() + s.expert_misses());
  std::fprintf(stderr,
               "[%s] %d prompt + %d new tokens | TTFT %.3f s | TPOT %.2f ms (%.1f tokens/s) | expert hit ratio %.1f %%, %s "
               "read on demand, %.3f s stalled | %s\n",
               FinishName(finish.reason()).c_str(), finish.usage().prompt_tokens(), finish.usage().completion_tokens(),
               s.ttft_seconds(), s.tpot_seconds() * 1e3, s.tpot_seconds() > 0 ? 1 / s.tpot_seconds() : 0.0,
               lookups > 0 ? 100.0 * static_cast<double>(s.expert_hits()) / lookups : 0.0, FormatBytes(s.bytes_read()).c_str(),
               s.stall_seconds(), LossText(s).c_str());
}

std::string LossText(const moe::v1::RequestStats& s) {
  std::vector<std::string> parts;
  if (s.experts_lowered() + s.experts_skipped() + s.experts_masked() > 0) {
    parts.push_back(absl::StrFormat("%.2f %% of the gate mass lost: %d experts lowered, %d skipped, %d choices masked",
                                    100 * s.gate_mass_lost(), s.experts_lowered(), s.experts_skipped(), s.experts_masked()));
  }
  if (s.fast_matmul_tokens() > 0) parts.push_back(StrCat(s.fast_matmul_tokens(), " tokens by fast-matmul"));
  if (s.lossy_cached_tokens() > 0) parts.push_back(StrCat(s.lossy_cached_tokens(), " cached tokens that had lost something"));
  return parts.empty() ? "exact" : absl::StrJoin(parts, ", ");
}

}  // namespace moed
