// What all clients together have not taken of their answers, and who is given up for it.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"

namespace moed::http {

// Thread-safe.
class UntakenAnswers {
 public:
  class Client {
   public:
    virtual ~Client() = default;  // after Remove
    // It reads too slowly. Any thread, maybe under locks of who answers another one.
    virtual void GiveUp() = 0;
  };

  // Beyond so many bytes those are given up to whom something has been sent longest.
  explicit UntakenAnswers(size_t most_bytes) : most_bytes_(most_bytes) {}

  // Of a client's answer so many bytes wait for the rest of it, in place of what was said of it before. False: too many, and to
  // nobody is anything sent.
  bool Keep(const std::shared_ptr<Client>& client, size_t bytes);
  // So many are sent to it from now on, likewise. The only one to whom something is sent is not given up.
  void Send(const std::shared_ptr<Client>& client, size_t bytes);
  // They are taken, or nobody waits for them.
  void Remove(const Client* client);

 private:
  struct Entry {
    std::weak_ptr<Client> client;
    size_t bytes = 0;
  };
  using Clients = std::vector<std::shared_ptr<Client>>;

  void Count(const std::shared_ptr<Client>& client, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Clients TakeSlow(const Client* beside) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Erase(const Client* client) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t most_bytes_;
  absl::Mutex mutex_;
  absl::flat_hash_map<const Client*, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::list<const Client*> sending_ ABSL_GUARDED_BY(mutex_);  // the one that has waited longest first
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;                  // of entries_
};

}  // namespace moed::http
