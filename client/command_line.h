// The command line as its user sees it: help, and what was wrong with it.
#pragma once

#include <memory>
#include <string>

#include "CLI/CLI.hpp"

namespace moed {

// For CLI::App::formatter, before subcommands are added. Of what flag_values.h says: "--window X (1 to 60; default 10)".
std::shared_ptr<CLI::Formatter> MakeHelpFormatter();

// For CLI::App::failure_message: what was wrong, and what is allowed there.
std::string CommandLineFailure(const CLI::App* app, const CLI::Error& error);

}  // namespace moed
