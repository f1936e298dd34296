// Callers with a token, as each other's tenants: whose session an id names, and how much one may ask for at once.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace moed {

// What the engine calls the session `id` of `tenant`: "tenant/id", so that another's is simply not known. Names of tokens have no
// '/'. The id itself where there is no tenant, and "" where there is no session.
std::string SessionOf(const std::string& tenant, const std::string& id);

// Thread-safe.
class Tenants {
 public:
  // A call's place, until its end.
  class Place {
   public:
    Place(Tenants& tenants, std::string tenant) : tenants_(&tenants), tenant_(std::move(tenant)) {}
    Place(Place&& other) noexcept : tenants_(std::exchange(other.tenants_, nullptr)), tenant_(std::move(other.tenant_)) {}
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (tenants_ != nullptr) tenants_->Leave(tenant_);
    }

   private:
    Tenants* tenants_;
    std::string tenant_;
  };

  // `most_calls`: of one tenant, running and waiting together; absent: as many as there are places for all.
  explicit Tenants(std::optional<int> most_calls) : most_calls_(most_calls) {}

  // RESOURCE_EXHAUSTED where the tenant has its calls already. "" is nobody in particular, and not counted.
  absl::StatusOr<Place> Enter(const std::string& tenant);

 private:
  void Leave(const std::string& tenant);

  const std::optional<int> most_calls_;
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, int> calls_ ABSL_GUARDED_BY(mutex_);  // of those that have some
};

}  // namespace moed
