// Whole files as text.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>

namespace moed {

// Unpacks .xz.
inline std::string ReadFileText(const std::string& path) {
  const bool packed = path.ends_with(".xz");
  std::FILE* file = packed ? popen(("xz -dc '" + path + "'").c_str(), "r") : std::fopen(path.c_str(), "rb");
  EXPECT_NE(file, nullptr) << path;
  if (file == nullptr) return "";
  std::string text;
  std::array<char, 65536> buffer;
  while (const size_t bytes = std::fread(buffer.data(), 1, buffer.size(), file)) text.append(buffer.data(), bytes);
  EXPECT_EQ(packed ? pclose(file) : std::fclose(file), 0) << path;
  return text;
}

}  // namespace moed
