#include "server/http/upstream/passage.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace moed::http {

void Passage::Enter(const void* call, size_t bytes, Go go) {
  {
    absl::MutexLock lock(&mutex_);
    if (!waiting_.empty() || !HasRoom(bytes)) return waiting_.push_back({call, bytes, std::move(go)});
    under_way_[call] = bytes;
    bytes_ += bytes;
  }
  go(/*to_daemon=*/true);
}

void Passage::Leave(const void* call) {
  std::vector<Go> going;
  {
    absl::MutexLock lock(&mutex_);
    if (const auto waits = std::ranges::find(waiting_, call, &Request::call); waits != waiting_.end()) {
      going.push_back(std::move(waits->go));
      waiting_.erase(waits);
    } else if (const auto found = under_way_.find(call); found != under_way_.end()) {
      bytes_ -= found->second;
      under_way_.erase(found);
    }
    while (!waiting_.empty() && HasRoom(waiting_.front().bytes)) {
      Request& first = waiting_.front();
      under_way_[first.call] = first.bytes;
      bytes_ += first.bytes;
      going.push_back(std::move(first.go));
      waiting_.pop_front();
    }
  }
  for (const Go& go : going) go(/*to_daemon=*/true);
}

void Passage::EndWaiting() {
  std::deque<Request> ended;
  {
    absl::MutexLock lock(&mutex_);
    ended.swap(waiting_);
  }
  for (const Request& request : ended) request.go(/*to_daemon=*/false);
}

}  // namespace moed::http
