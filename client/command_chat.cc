#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>

#include "client/command.h"
#include "client/conversation.h"
#include "client/shown.h"
#include "core/base/status.h"

namespace moed {
namespace {

struct ChatFlags {
  GenerateFlags generate;
  std::string system;
  std::string conversation_path;
  std::string session;
  std::optional<std::string> prompt;
  std::string prompt_file;
  bool plain = false;
  bool no_reasoning = false;
};

constexpr std::string_view kSave = "/save ";
constexpr const char* kHelp =
    "  /reset      begin anew\n"
    "  /save FILE  write the conversation; --conversation FILE takes it up\n"
    "  /quit       end, as Ctrl-D does\n"
    "Ctrl-C stops an answer. A line that ends with \\ goes on in the next one.\n";

constexpr const char* kFull =
    "the conversation is full: /reset begins anew; for longer ones the daemon needs a larger --max-context or --kv-budget\n";

// The answer under way, which Ctrl-C stops.
class Answering {
 public:
  void Begin(Cancellation& answer) {
    absl::MutexLock lock(&mutex_);
    answer_ = &answer;
  }
  void End() {
    absl::MutexLock lock(&mutex_);
    answer_ = nullptr;
  }
  // False when there is none.
  bool Stop() {
    absl::MutexLock lock(&mutex_);
    if (answer_ != nullptr) answer_->Cancel();
    return answer_ != nullptr;
  }

 private:
  absl::Mutex mutex_;
  Cancellation* answer_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

class Chat {
 public:
  ChatFlags& flags() { return flags_; }

  // Once the flags are there.
  absl::Status Prepare() {
    moe::v1::GenerateRequest options;
    MOED_RETURN_IF_ERROR(flags_.generate.Apply(options));
    if (flags_.plain) {
      if (!flags_.system.empty() || !flags_.conversation_path.empty()) {
        return UsageError("--plain continues texts of their own: no --system, no --conversation");
      }
      options.set_session_id(flags_.session);
      text_request_ = options;
    }
    *request_.mutable_sampling() = options.sampling();
    *request_.mutable_stopping() = options.stopping();
    request_.set_session_id(flags_.session);
    if (options.has_fidelity()) *request_.mutable_fidelity() = options.fidelity();
    request_.set_priority(options.priority());
    if (options.has_format()) *request_.mutable_format() = options.format();
    if (!flags_.prompt_file.empty()) {
      MOED_ASSIGN_OR_RETURN(flags_.prompt, ReadWholeFile(flags_.prompt_file));
    }
    if (!flags_.conversation_path.empty()) {
      if (!flags_.system.empty()) return UsageError("give one of --system and --conversation");
      return AsUsage(LoadConversation(flags_.conversation_path, messages()));
    }
    Reset();
    return absl::OkStatus();
  }

  absl::Status Run(CommandContext& context) {
    context_ = &context;
    if (flags_.prompt) return Answer(*flags_.prompt, context_->cancellation);
    if (!input_on_terminal_ || !output_on_terminal_) return AnswerLines();
    // The watcher of signals may call it until the process ends.
    context_->interrupts.Handle([answering = answering_] {
      if (!answering->Stop()) std::fputs("\n/quit or Ctrl-D ends\n> ", stderr);
    });
    std::fprintf(stderr, "/help says what else there is\n");
    const absl::Status status = Converse();
    context_->interrupts.Handle(nullptr);
    return status;
  }

 private:
  ChatMessages& messages() { return *request_.mutable_messages(); }

  void Reset() {
    messages().Clear();
    full_ = false;
    if (!flags_.system.empty()) AddMessage(messages(), "system", flags_.system);
  }

  // Each line is a message. Ends at the first that is not answered.
  absl::Status AnswerLines() {
    for (std::string line; std::getline(std::cin, line);) {
      if (!line.empty()) MOED_RETURN_IF_ERROR(Answer(line, context_->cancellation));
    }
    return absl::OkStatus();
  }

  absl::Status Converse() {
    while (const std::optional<std::string> line = ReadMessage()) {
      if (line->empty()) continue;
      if (line->front() == '/') {
        if (!Obey(*line)) return absl::OkStatus();
        continue;
      }
      Cancellation cancellation;
      answering_->Begin(cancellation);
      const absl::Status status = Answer(*line, cancellation);
      answering_->End();
      if (full_ && (status.ok() || absl::IsInvalidArgument(status))) {
        std::fputs(kFull, stderr);
      } else if (!status.ok() && !cancellation.cancelled()) {
        std::fprintf(stderr, "%s\n", ErrorText(status).c_str());
      }
    }
    std::fputs("\n", stderr);
    return absl::OkStatus();
  }

  static std::optional<std::string> ReadMessage() {
    std::string message;
    std::fputs("> ", stderr);
    for (std::string line; std::getline(std::cin, line);) {
      message += line;
      if (!message.ends_with('\\')) return message;
      message.back() = '\n';
      std::fputs(". ", stderr);
    }
    return std::nullopt;
  }

  // False when it ends the conversation.
  bool Obey(std::string_view line) {
    if (line == "/quit") return false;
    if (line == "/reset") {
      Reset();
    } else if (line.starts_with(kSave)) {
      const absl::Status status = SaveConversation(std::string(line.substr(kSave.size())), messages());
      std::fprintf(
          stderr, "%s\n",
          status.ok() ? StrCat("saved ", messages().size(), " messages").c_str() : std::string(status.message()).c_str());
    } else {
      std::fputs(kHelp, stderr);
    }
    return true;
  }

  // What came before Ctrl-C stays in the conversation. What failed leaves nothing there.
  absl::Status Answer(const std::string& text, Cancellation& cancellation) {
    AddMessage(messages(), "user", text);
    moe::v1::ChatMessage answer;
    answer.set_role("assistant");
    std::string& said = *answer.add_content()->mutable_text();
    moe::v1::Finish finish;
    const auto take = [&](const auto& part) {
      ShowText(part.text());
      said += part.text();
      if (part.has_finish()) finish = part.finish();
      return true;
    };
    const auto take_reasoning = [&](const moe::v1::ChatResponse& part) {
      ShowReasoning(part.reasoning());
      answer.mutable_reasoning()->append(part.reasoning());
      return take(part);
    };
    if (text_request_) text_request_->set_text(text);
    const absl::Status status = text_request_ ? context_->client.GenerateStream(*text_request_, take, &cancellation)
                                              : context_->client.ChatStream(request_, take_reasoning, &cancellation);
    const bool stopped = cancellation.cancelled() && !said.empty();
    if (!said.empty() || !answer.reasoning().empty()) std::printf("\n");
    std::fflush(stdout);
    if (status.ok()) {
      PrintSummary(finish);
      full_ = !text_request_ && finish.reason() == moe::v1::FINISH_REASON_CONTEXT;
    }
    if (status.ok() || stopped) {
      *messages().Add() = std::move(answer);
    } else {
      messages().RemoveLast();
    }
    return status;
  }

  // Dim on a terminal and not shown elsewhere.
  void ShowReasoning(const std::string& reasoning) const {
    if (!output_on_terminal_ || flags_.no_reasoning || reasoning.empty()) return;
    std::printf("\033[2m%s\033[0m", TextOn(stdout, reasoning).c_str());
  }
  void ShowText(const std::string& said) const {
    const std::string text = TextOn(stdout, said);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  ChatFlags flags_;
  CommandContext* context_ = nullptr;  // while it runs
  const bool input_on_terminal_ = isatty(STDIN_FILENO) != 0, output_on_terminal_ = isatty(STDOUT_FILENO) != 0;
  const std::shared_ptr<Answering> answering_ = std::make_shared<Answering>();
  moe::v1::ChatRequest request_;
  std::optional<moe::v1::GenerateRequest> text_request_;  // with --plain, instead
  bool full_ = false;                                     // its last answer has filled the context
};

}  // namespace

CommandRun DefineChat(CLI::App& app) {
  auto chat = std::make_shared<Chat>();
  ChatFlags* const flags = &chat->flags();
  app.add_option("--system", flags->system, "the system's message, before the first");
  app.add_option("--conversation", flags->conversation_path, "go on with a conversation that /save wrote");
  auto* once = app.add_option_group("once", "answer one message, and end")->require_option(0, 1);
  once->add_option("--prompt,-p", flags->prompt, "the message");
  once->add_option("--prompt-file", flags->prompt_file, "the file with the message; - is standard input");
  app.add_flag("--plain", flags->plain, "continue each message as a text of its own, with a model that has no chat template");
  app.add_option("--session", flags->session, "keep the keys and values of this conversation under this name");
  app.add_flag("--no-reasoning", flags->no_reasoning, "do not show what the model thinks before it answers");
  flags->generate.Define(app);
  return {[chat] { return chat->Prepare(); }, [chat](CommandContext& context) { return chat->Run(context); }};
}

}  // namespace moed
