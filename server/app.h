// The daemon: who may ask, what listens, services, metrics, and the order in which they start and end.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/startup/config.h"
#include "server/startup/routing_source.h"

namespace moed {

class App {
 public:
  // `routing`: in the place of the model's router, outlives the app; null: nobody.
  explicit App(Config config, RoutingSource* routing = nullptr);
  ~App();

  // Plans memory, listens (health says not serving), loads the model, serves. RESOURCE_EXHAUSTED with the table of needs when the
  // memory budget is too small.
  absl::Status Start();

  // Asks Run to return after a drain. False while loading. Thread-safe.
  bool RequestStop();
  // Reads the files of --tls-cert and its like anew; the log says what came of it. Thread-safe.
  void Reload();
  // Serves until RequestStop, then drains: not ready at once, new calls fail after --drain-delay-seconds, running ones go on for
  // --drain-seconds more, the rest is cancelled. Once.
  absl::Status Run();
  std::string address() const;  // of Inference, with the port that was bound; once Start has returned

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moed
