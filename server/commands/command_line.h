// The command line of `moed COMMAND`, read.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace moed {

// `arguments` are those after the command's name, which is the app's. An exit code where there is nothing to run: 0 after --help,
// 2 where one is wrong; then it is told what is allowed, `more` too.
std::optional<int> ParseCommandLine(CLI::App& app, std::span<const std::string> arguments, std::string_view more = "");

}  // namespace moed
