// What the command lines of the tools have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace moed {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

// "--help, --version, ..." of the command that was being parsed.
std::string AllowedFlags(const CLI::App& app);

}  // namespace moed
