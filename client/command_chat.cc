#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>

#include "client/command.h"
#include "client/conversation.h"
#include "core/base/status.h"

namespace moed {
namespace {

struct Flags {
  GenerateFlags generate;
  std::string system;
  std::string conversation_path;
  std::string session;
  bool no_reasoning = false;
};

constexpr std::string_view kSave = "/save ";
constexpr const char* kHelp =
    "  /reset      begin anew\n"
    "  /save FILE  write the conversation; --conversation FILE takes it up\n"
    "  /quit       end, as Ctrl-D does\n"
    "Ctrl-C stops an answer. A line that ends with \\ goes on in the next one.\n";

// What a model says must not steer the terminal.
std::string Printable(std::string_view text) {
  std::string out;
  for (const char c : text) out += (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) || c == '\n' || c == '\t' ? c : '?';
  return out;
}

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
  Chat(const Flags& flags, CommandContext& context) : flags_(flags), context_(context) {}

  absl::Status Run() {
    MOED_RETURN_IF_ERROR(Prepare());
    if (!on_terminal_) return AnswerLines();
    // The watcher of signals may call it until the process ends.
    context_.interrupts.Handle([answering = answering_] {
      if (!answering->Stop()) std::fputs("\n/quit or Ctrl-D ends\n> ", stderr);
    });
    std::fprintf(stderr, "/help says what else there is\n");
    const absl::Status status = Converse();
    context_.interrupts.Handle(nullptr);
    return status;
  }

 private:
  absl::Status Prepare() {
    moe::v1::GenerateRequest options;
    MOED_RETURN_IF_ERROR(flags_.generate.Apply(options));
    *request_.mutable_sampling() = options.sampling();
    *request_.mutable_stopping() = options.stopping();
    request_.set_session_id(flags_.session);
    if (options.has_fidelity()) *request_.mutable_fidelity() = options.fidelity();
    if (!flags_.conversation_path.empty()) {
      if (!flags_.system.empty()) return InvalidArgument("give one of --system and --conversation");
      return LoadConversation(flags_.conversation_path, messages());
    }
    Reset();
    return absl::OkStatus();
  }

  ChatMessages& messages() { return *request_.mutable_messages(); }

  void Reset() {
    messages().Clear();
    if (!flags_.system.empty()) AddMessage(messages(), "system", flags_.system);
  }

  // Each line is a message. Ends at the first that is not answered.
  absl::Status AnswerLines() {
    for (std::string line; std::getline(std::cin, line);) {
      if (!line.empty()) MOED_RETURN_IF_ERROR(Answer(line, context_.cancellation));
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
      if (status.ok() || cancellation.cancelled()) continue;
      std::fprintf(stderr, "%s: %s\n", absl::StatusCodeToString(status.code()).c_str(), std::string(status.message()).c_str());
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
    const absl::Status status = context_.client.ChatStream(
        request_,
        [&](const moe::v1::ChatResponse& part) {
          Show(part);
          said += part.text();
          answer.mutable_reasoning()->append(part.reasoning());
          if (part.has_finish()) finish = part.finish();
          return true;
        },
        &cancellation);
    const bool stopped = cancellation.cancelled() && !said.empty();
    if (!said.empty() || !answer.reasoning().empty()) std::printf("\n");
    std::fflush(stdout);
    if (status.ok()) PrintSummary(finish);
    if (status.ok() || stopped) {
      *messages().Add() = std::move(answer);
    } else {
      messages().RemoveLast();
    }
    return status;
  }

  // Reasoning is dim on a terminal and not shown elsewhere.
  void Show(const moe::v1::ChatResponse& part) const {
    if (on_terminal_ && !flags_.no_reasoning && !part.reasoning().empty()) {
      std::printf("\033[2m%s\033[0m", Printable(part.reasoning()).c_str());
    }
    const std::string text = on_terminal_ ? Printable(part.text()) : part.text();
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  const Flags& flags_;
  CommandContext& context_;
  const bool on_terminal_ = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  const std::shared_ptr<Answering> answering_ = std::make_shared<Answering>();
  moe::v1::ChatRequest request_;
};

}  // namespace

CommandRun DefineChat(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.add_option("--system", flags->system, "the system's message, before the first");
  app.add_option("--conversation", flags->conversation_path, "go on with a conversation that /save wrote");
  app.add_option("--session", flags->session, "keep the keys and values of this conversation under this name");
  app.add_flag("--no-reasoning", flags->no_reasoning, "do not show what the model thinks before it answers");
  flags->generate.Define(app);
  return [flags](CommandContext& context) { return Chat(*flags, context).Run(); };
}

}  // namespace moed
