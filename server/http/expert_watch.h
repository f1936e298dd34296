// GET /moed/experts: what happens to the experts, as events, for as long as somebody listens.
#pragma once

#include <atomic>
#include <memory>

#include "server/http/transport/exchange.h"
#include "server/http/upstream/daemon.h"

namespace moed::http {

// Thread-safe. Outlives Daemon::End.
class ExpertWatches {
 public:
  explicit ExpertWatches(Daemon& daemon) : daemon_(daemon) {}

  void Begin(const std::shared_ptr<Exchange>& exchange);
  // Those that listen get no further event.
  void End() { ending_ = true; }

 private:
  Daemon& daemon_;
  std::atomic<bool> ending_{false};
};

}  // namespace moed::http
