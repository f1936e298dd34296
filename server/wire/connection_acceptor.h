// Listens and takes connections, as many as are allowed. gRPC itself takes all that come and, out of descriptors, stops
// listening.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/address.h"

namespace moed {

// A thread of its own from Start on. Thread-safe.
class ConnectionAcceptor {
 public:
  // Listens on all that the host's name stands for; nobody else can listen on the port. Or on a path, whose socket is removed in
  // the end; one that nobody listens on any more is replaced. Errors name address and reason.
  // `max_connections`: open at once; what comes beyond is closed.
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Listen(const Address& address, int max_connections);
  ~ConnectionAcceptor();  // Stop

  int port() const { return address_.port; }
  // Once. `take` owns the connection, which does not block.
  void Start(std::function<void(int connection)> take);
  void Stop();                                   // nothing is taken from here on
  uint64_t refused() const { return refused_; }  // closed as soon as they came

 private:
  ConnectionAcceptor(Address address, std::vector<int> listeners, int max_connections);
  void Loop();
  // False where the connection stays, and another try at once would fail, too.
  bool Accept(int listener);
  bool CloseNext(int listener);  // in the place of the spare descriptor
  bool HasRoom();

  const Address address_;  // with the port that was bound
  const int max_connections_;
  std::vector<int> listeners_;
  const int wake_;  // eventfd
  int spare_;       // given up for a moment where descriptors have run out; -1: there was none to have it again
  int room_ = 0;    // that there is for sure
  std::atomic<uint64_t> refused_{0};
  std::function<void(int)> take_;
  std::thread thread_;
};

}  // namespace moed
