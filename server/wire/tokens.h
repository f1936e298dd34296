// The tokens that callers may present: a file of their names, scopes and hashes, which may be read anew.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/wire/token_line.h"

namespace moed {

// Thread-safe.
class Tokens {
 public:
  // A line a token, as server/wire/token_line.h has it; empty ones and those that begin with # are none. A name may have several,
  // which say the same of its limits.
  // INVALID_ARGUMENT names file and line where it cannot be read, holds no token, or a line is wrong.
  static absl::StatusOr<std::unique_ptr<Tokens>> Read(const std::string& path);

  // The name of whose token it is. UNAUTHENTICATED: "" or one that is not known. PERMISSION_DENIED names the scope that it lacks.
  // The time it takes does not depend on which token is like it, or how much.
  absl::StatusOr<std::string> Check(std::string_view token, Scope scope) const;
  // Of a name; default ones where it has no line any more.
  TenantLimits LimitsOf(std::string_view name) const;
  // Names and their limits, by name.
  std::vector<std::pair<std::string, TenantLimits>> List() const;
  // Reads the file anew. Where something is wrong with it, what it said before goes on.
  absl::Status Reload();

 private:
  using Lines = std::vector<TokenLine>;
  Tokens(std::string path, Lines lines) : path_(std::move(path)), lines_(std::make_shared<const Lines>(std::move(lines))) {}
  static absl::StatusOr<Lines> ReadLines(const std::string& path);
  std::shared_ptr<const Lines> lines() const {
    absl::MutexLock lock(&mutex_);
    return lines_;
  }

  const std::string path_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const Lines> lines_ ABSL_GUARDED_BY(mutex_);
};

// Of a request's headers: what follows "Bearer " (in whatever case) in `authorization`, or else the whole of `x_api_key`, as
// Anthropic's clients have it.
std::string TokenOf(std::string_view authorization, std::string_view x_api_key);

}  // namespace moed
