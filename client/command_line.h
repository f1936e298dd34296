// How a bad command line is reported: what was wrong, and what is allowed there.
#pragma once

#include <string>

#include "CLI/CLI.hpp"

namespace moed {

// "a, b, c": flags, then subcommands of `app`.
inline std::string AllowedOn(const CLI::App& app) {
  std::string allowed;
  const auto add = [&](const std::string& name) { allowed += (allowed.empty() ? "" : ", ") + name; };
  for (const CLI::Option* option : app.get_options()) add(option->get_name(option->get_positional(), false));
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) add(sub->get_name());
  return allowed;
}

// For CLI::App::failure_message.
inline std::string CommandLineFailure(const CLI::App* app, const CLI::Error& error) {
  const CLI::App* at = app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().back();
  std::string text = app->get_name() + ": " + error.what() + "\n";
  const bool unknown =
      dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr || dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (unknown) text += "allowed for " + at->get_name() + ": " + AllowedOn(*at) + "\n";
  return text + "run " + at->get_display_name() + " --help for what they mean\n";
}

}  // namespace moed
