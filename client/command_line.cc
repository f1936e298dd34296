#include "client/command_line.h"

#include <algorithm>
#include <vector>

#include "core/base/status.h"

namespace moed {
namespace {

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() {
    label("INT", "N");
    label("UINT", "N");
    label("FLOAT", "X");
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return Formatter::make_option_opts(option);
    constexpr std::string_view kValues = ":(";  // before what flag_values.h says
    std::string type = option->get_type_name();
    std::vector<std::string> said;
    if (const size_t at = type.find(kValues); at != std::string::npos) {
      said.push_back(type.substr(at + kValues.size(), type.size() - at - kValues.size() - 1));
      type.resize(at);
    }
    if (!option->get_default_str().empty()) said.push_back(StrCat("default ", option->get_default_str()));
    if (!option->get_envname().empty()) said.push_back(StrCat("or the variable ", option->get_envname()));
    for (const CLI::Option* other : option->get_excludes()) said.push_back(StrCat("not with ", other->get_name()));
    const bool several = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    std::string text = StrCat(" ", get_label(type), several ? " ..." : "");
    for (size_t i = 0; i < said.size(); ++i) text += StrCat(i == 0 ? " (" : "; ", said[i], i + 1 == said.size() ? ")" : "");
    return text;
  }
};

std::vector<const CLI::App*> Nested(const CLI::App& app, bool groups) {
  std::vector<const CLI::App*> found;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name().empty() == groups) found.push_back(sub);
  }
  return found;
}

std::vector<const CLI::Option*> OptionsOf(const CLI::App& app) {
  std::vector<const CLI::Option*> options = app.get_options();
  for (const CLI::App* group : Nested(app, true)) {
    for (const CLI::Option* option : group->get_options()) {
      if (option != group->get_help_ptr()) options.push_back(option);  // each has one, that the command has, too
    }
  }
  return options;
}

std::string CommandsOf(const CLI::App& app) {
  return JoinNames(Nested(app, false), [](const CLI::App* sub) { return sub->get_name(); });
}

std::string FlagsOf(const CLI::App& app) {
  return JoinNames(OptionsOf(app), [](const CLI::Option* option) { return option->get_name(option->get_positional(), false); });
}

// The commands that were given, the program first: "moectl", "session", "list".
std::vector<const CLI::App*> Path(const CLI::App& app) {
  std::vector<const CLI::App*> path = {&app};
  while (!path.back()->get_subcommands().empty()) path.push_back(path.back()->get_subcommands().back());
  return path;
}

// What stands where a command was wanted.
std::string MissingCommand(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining(true);
  if (words.empty()) return "a command is missing";
  const auto word = std::ranges::find_if(words, [](const std::string& w) { return !w.starts_with('-'); });
  return word == words.end() ? StrCat("unknown flag ", words.front()) : StrCat("unknown command '", *word, "'");
}

std::string Mismatch(const std::vector<const CLI::App*>& path, const std::string& text) {
  for (const CLI::App* app : path) {
    for (const CLI::Option* option : OptionsOf(*app)) {
      const auto most = static_cast<size_t>(std::max(option->get_items_expected_max(), 1));
      if (option->count() > most) {
        return StrCat(option->get_name(), " is given ", option->count(), " times; it has one value");
      }
    }
  }
  return StrCat(text.substr(0, text.find(": ")), ": its value is missing");
}

std::string Wrong(const CLI::App& app, const std::vector<const CLI::App*>& path, const CLI::Error& error) {
  const CLI::App& at = *path.back();
  const std::string text = error.what(), commands = CommandsOf(at);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) return Mismatch(path, text);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !commands.empty()) {
    return StrCat(MissingCommand(app), "; commands are ", commands);
  }
  return text;
}

}  // namespace

std::shared_ptr<CLI::Formatter> MakeHelpFormatter() { return std::make_shared<HelpFormatter>(); }

std::string CommandLineFailure(const CLI::App* app, const CLI::Error& error) {
  const std::vector<const CLI::App*> path = Path(*app);
  const CLI::App& at = *path.back();
  std::string name;
  for (const CLI::App* part : path) name += StrCat(name.empty() ? "" : " ", part->get_name());
  std::string text = StrCat("moectl: ", Wrong(*app, path, error), "\n");
  const bool unknown =
      dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr || dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (unknown) text += StrCat("allowed for ", name, ": ", FlagsOf(at), "\n");
  return StrCat(text, "run ", name, " --help for what they mean\n");
}

}  // namespace moed
