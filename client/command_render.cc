#include <cstdio>
#include <ctime>
#include <memory>

#include "client/command.h"
#include "client/shown.h"
#include "core/base/status.h"
#include "core/chat/json.h"
#include "core/chat/template.h"

namespace moed {
namespace {

constexpr std::string_view kAddGenerationPrompt = "add_generation_prompt";

struct RenderFlags {
  std::string template_path;
  std::string conversation_path;
  bool add_generation_prompt = false;
  std::string now;
};

absl::StatusOr<std::tm> TimeOf(const std::string& text) {
  std::tm time = {};
  if (text.empty()) {
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &time);
    return time;
  }
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (end == nullptr || *end != '\0' || timegm(&time) == -1)
    return UsageError("--now '", text, "': expected a time as 2026-01-31T12:00:00");
  return time;
}

// The conversation's object with what the command line adds.
absl::StatusOr<chat::Value> VariablesOf(const RenderFlags& flags) {
  MOED_ASSIGN_OR_RETURN(const std::string json, ReadWholeFile(flags.conversation_path));
  const auto given = chat::ValueFromJson(json);
  if (!given.ok()) return Annotate(given.status(), flags.conversation_path);
  if (!given->is(chat::Kind::kDict)) {
    return InvalidArgument(flags.conversation_path, ": expected an object with \"messages\", not ", chat::TypeName(*given));
  }
  std::vector<chat::Dict::Entry> entries = given->dict().entries();
  const bool said = given->dict().Find(kAddGenerationPrompt) != nullptr;
  if (flags.add_generation_prompt || !said) {
    entries.emplace_back(chat::MakeText(std::string(kAddGenerationPrompt)), chat::Value(flags.add_generation_prompt));
  }
  return chat::MakeDict(std::move(entries));
}

absl::Status RunRender(const RenderFlags& flags) {
  MOED_ASSIGN_OR_RETURN(const std::string source, ReadWholeFile(flags.template_path));
  auto parsed = chat::Template::Parse(source);
  if (!parsed.ok()) return Annotate(parsed.status(), flags.template_path);
  chat::RenderOptions options;
  MOED_ASSIGN_OR_RETURN(options.now, TimeOf(flags.now));
  MOED_ASSIGN_OR_RETURN(const chat::Value variables, VariablesOf(flags));
  MOED_ASSIGN_OR_RETURN(const chat::MarkedText prompt, parsed->Render(variables, options));
  const std::string text = TextOn(stdout, prompt.text);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return absl::OkStatus();
}

}  // namespace

LocalCommandRun DefineRender(CLI::App& app) {
  auto flags = std::make_shared<RenderFlags>();
  app.add_option("--template", flags->template_path, "chat template (Jinja); - is standard input")->required();
  app.add_option("--conversation", flags->conversation_path,
                 "JSON: {\"messages\": [...], \"tools\": [...], \"bos_token\": ..., further variables}; - is standard input")
      ->required();
  app.add_flag("--add-generation-prompt", flags->add_generation_prompt, "end where the assistant's answer begins");
  app.add_option("--now", flags->now, "what strftime_now shows: 2026-01-31T12:00:00 (default: the local time)");
  return [flags] { return RunRender(*flags); };
}

}  // namespace moed
