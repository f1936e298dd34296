// The TLS of an address: certificate, key and the authorities of clients, from files that may be read anew while it serves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace moed {

struct TlsFiles {
  std::string certificate;  // PEM, the server's first and then those between it and a root; "" = no TLS
  std::string key;          // PEM, not encrypted
  std::string client_ca;    // PEM, whose certificates clients must have; "" = clients need none
};

// INVALID_ARGUMENT where one of --tls-cert and --tls-key is given without the other, or --tls-client-ca without both.
absl::Status CheckTlsFiles(const TlsFiles& files);

// The files' contents, checked together.
struct TlsMaterial {
  std::string certificate, key, client_ca;
  int64_t end_seconds = 0;  // since the epoch: the first of all certificates expires then
};

// INVALID_ARGUMENT names the flag, the file, what is wrong and what to do: a file that cannot be read or holds no PEM of its
// kind, a key of another certificate, a certificate that has expired or is not valid yet.
absl::StatusOr<TlsMaterial> ReadTlsMaterial(const TlsFiles& files);

// Thread-safe.
class Certificates {
 public:
  // Errors as ReadTlsMaterial.
  static absl::StatusOr<std::unique_ptr<Certificates>> Read(const TlsFiles& files);

  // What new connections are to take. Another object after each Reload that changed something.
  std::shared_ptr<const TlsMaterial> current() const;
  bool asks_clients() const { return !files_.client_ca.empty(); }
  // Reads the files anew. Where they are not whole or do not belong together, what there was goes on and the error says so.
  absl::Status Reload();

 private:
  Certificates(TlsFiles files, TlsMaterial material)
      : files_(std::move(files)), current_(std::make_shared<const TlsMaterial>(std::move(material))) {}

  const TlsFiles files_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const TlsMaterial> current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moed
