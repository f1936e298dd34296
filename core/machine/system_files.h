// Files in which the kernel says one thing a line. What is absent or no number is nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moed {

// "536870912"; "max" is nothing.
std::optional<uint64_t> ReadNumber(const std::string& path);
// Of the line that begins with `name`: "inactive_file 4096", and without its unit "MemAvailable:  10485760 kB".
std::optional<uint64_t> ReadNamedNumber(const std::string& path, std::string_view name);
std::optional<std::string> ReadLine(const std::string& path);
// The word in brackets: "always [madvise] never".
std::optional<std::string> ReadChosenWord(const std::string& path);

// Of /proc/meminfo, in bytes.
std::optional<uint64_t> ReadMemInfo(const std::string& root, std::string_view name);

// What is mounted where `path` lies: "ext4", from /proc/self/mountinfo. `path` absolute, without links.
std::optional<std::string> FileSystemOf(const std::string& root, std::string_view path);

}  // namespace moed
