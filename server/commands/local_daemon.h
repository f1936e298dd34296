// The daemon as a child of a command, which alone knows where it listens.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/commands/child.h"
#include "server/commands/private_folder.h"
#include "server/commands/stop_signals.h"

namespace moed {

// Not synchronised.
class LocalDaemon {
 public:
  // Of this process's own program, with these flags, listening on a unix socket in `folder`. It writes its log to `log_path`.
  static absl::StatusOr<LocalDaemon> Start(const PrivateFolder& folder, std::vector<std::string> flags, std::string log_path,
                                           const StopSignals& signals);
  LocalDaemon(LocalDaemon&& other) noexcept
      : address_(std::move(other.address_)),
        child_(std::move(other.child_)),
        notices_(std::exchange(other.notices_, -1)),
        log_path_(std::move(other.log_path_)) {}
  LocalDaemon& operator=(LocalDaemon&&) = delete;
  ~LocalDaemon();

  const std::string& address() const { return address_; }  // for clients
  // Until it serves. FAILED_PRECONDITION: it has ended (HowItEnded). CANCELLED: a stop signal came.
  absl::Status WaitUntilServing(StopSignals& signals);
  bool Ended() { return child_.Ended(); }
  // An error, with the end of its log and where that is. Once it has ended.
  absl::Status HowItEnded() const;
  // Asks it to end and waits, but for so long at most; then it is killed. A stop signal that comes meanwhile asks again, which
  // ends it at once. The log of one that ended well is removed; else HowItEnded.
  absl::Status Stop(int seconds, StopSignals& signals);

 private:
  LocalDaemon(std::string address, Child child, int notices, std::string log_path)
      : address_(std::move(address)), child_(std::move(child)), notices_(notices), log_path_(std::move(log_path)) {}

  std::string address_;
  Child child_;
  int notices_;  // the socket that it tells on that it serves
  std::string log_path_;
};

}  // namespace moed
