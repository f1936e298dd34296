#include "core/machine/system_files.h"

#include <fstream>
#include <sstream>

#include "core/base/status.h"

namespace moed {
namespace {

// Spaces and backslashes of a mount point are written as "\040".
std::string Unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](size_t digit) { return text[i + digit] >= '0' && text[i + digit] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && octal(1) && octal(2) && octal(3)) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool LiesIn(std::string_view path, std::string_view folder) {
  if (folder == "/") return path.starts_with('/');
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

std::optional<uint64_t> ReadNamedNumber(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string key;
    uint64_t number = 0;
    if (fields >> key >> number && key == name) return number;
  }
  return std::nullopt;
}

std::optional<std::string> ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<std::string> ReadChosenWord(const std::string& path) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (word.size() > 2 && word.front() == '[' && word.back() == ']') return word.substr(1, word.size() - 2);
  }
  return std::nullopt;
}

std::optional<uint64_t> ReadMemInfo(const std::string& root, std::string_view name) {
  const std::optional<uint64_t> kilobytes = ReadNamedNumber(root + "/proc/meminfo", StrCat(name, ":"));
  if (!kilobytes.has_value()) return std::nullopt;
  return *kilobytes * 1024;
}

// "36 35 98:0 /inside /mount/point rw,noatime master:1 - ext3 /dev/root rw": any number of fields before the dash. A later mount
// hides an earlier one at the same place.
std::optional<std::string> FileSystemOf(const std::string& root, std::string_view path) {
  std::ifstream mounts(root + "/proc/self/mountinfo");
  std::optional<std::string> found;
  size_t longest = 0;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string skipped, point, type;
    fields >> skipped >> skipped >> skipped >> skipped >> point;
    while (fields >> skipped && skipped != "-") {
    }
    if (!(fields >> type)) continue;
    point = Unescaped(point);
    if (!LiesIn(path, point) || point.size() < longest) continue;
    longest = point.size();
    found = type;
  }
  return found;
}

}  // namespace moed
