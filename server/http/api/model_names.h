// What requests may call the model.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/api/api_error.h"
#include "server/http/upstream/daemon.h"

namespace moed::http {

// Thread-safe.
class ModelNames {
 public:
  struct Served {
    std::vector<std::string> names;
    ServedModel model;
  };

  // `names`: all that the model is called; empty: as its store.
  ModelNames(const Daemon& daemon, std::vector<std::string> names) : daemon_(daemon), names_(std::move(names)) {}

  // Nothing where a request may call the model `name`.
  std::optional<ApiError> Refusal(const std::string& name) const;
  // UNAVAILABLE while the daemon does not serve.
  absl::StatusOr<Served> Serving() const;

 private:
  const Daemon& daemon_;
  const std::vector<std::string> names_;
};

}  // namespace moed::http
