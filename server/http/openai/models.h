// /v1/models, and what requests may call the model.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/api/api_error.h"
#include "server/http/transport/exchange.h"
#include "server/http/upstream/daemon.h"

namespace moed::http {

// Thread-safe.
class ModelNames {
 public:
  // `names`: all that the model is called; empty: as its store.
  ModelNames(const Daemon& daemon, std::vector<std::string> names) : daemon_(daemon), names_(std::move(names)) {}

  // Nothing where a request may call the model `name`.
  std::optional<ApiError> Refusal(const std::string& name) const;

  HttpReply List() const;
  HttpReply One(const std::string& name) const;

 private:
  struct Served {
    std::vector<std::string> names;
    ServedModel model;
  };
  absl::StatusOr<Served> Serving() const;

  const Daemon& daemon_;
  const std::vector<std::string> names_;
};

}  // namespace moed::http
