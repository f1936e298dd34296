// A moed of the benchmark's own: started for one measurement, ended after it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"

namespace moed {

// Not synchronised. Its end is the daemon's.
class Daemon {
 public:
  // Starts `program` with `flags` on a free port and waits until it serves. FAILED_PRECONDITION with what it said when it
  // ends before that.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const std::string& program, std::vector<std::string> flags);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  Client& client() { return *client_; }
  uint64_t peak_resident_bytes() const;  // 0 when it cannot be read

 private:
  Daemon(pid_t pid, std::string log) : pid_(pid), log_(std::move(log)) {}
  absl::Status WaitUntilReady();
  bool Ended();

  pid_t pid_;  // 0: has been waited for
  const std::string log_;
  std::unique_ptr<Client> client_;
};

// The folder of the running program, where its sibling programs are.
std::string ProgramFolder();
// NOT_FOUND where there is nothing to run at this path.
absl::Status CheckProgram(const std::string& program);

}  // namespace moed
