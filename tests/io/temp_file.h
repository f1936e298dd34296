// Files of known random content, and one read awaited.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>

#include "absl/synchronization/notification.h"
#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/io/read_backend.h"
#include "gtest/gtest.h"

namespace moed {

inline std::string RandomContents(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string contents(bytes, '\0');
  for (char& c : contents) c = static_cast<char>(random());
  return contents;
}

// A fresh name under testing::TempDir(), gone with this object.
class TempFile {
 public:
  explicit TempFile(std::string_view contents) {
    const int descriptor = mkstemp(path_.data());
    MOED_CHECK(descriptor >= 0);
    close(descriptor);
    std::ofstream(path_, std::ios::binary) << contents;
  }
  ~TempFile() { std::remove(path_.c_str()); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = testing::TempDir() + "moed_XXXXXX";
};

inline std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline absl::Status ReadNow(ReadBackend& backend, uint64_t offset, std::span<std::byte> destination) {
  absl::Notification answered;
  absl::Status outcome;
  backend.Submit({offset, destination, [&](absl::Status status) {
                    outcome = std::move(status);
                    answered.Notify();
                  }});
  answered.WaitForNotification();
  return outcome;
}

inline std::string MessageOf(const absl::Status& status) { return std::string(status.message().data(), status.message().size()); }

}  // namespace moed
