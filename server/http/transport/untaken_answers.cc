#include "server/http/transport/untaken_answers.h"

#include <utility>

namespace moed::http {

bool UntakenAnswers::Keep(const std::shared_ptr<Client>& client, size_t bytes) {
  Clients slow;
  bool has_room = false;
  {
    absl::MutexLock lock(&mutex_);
    Count(client, bytes);
    slow = TakeSlow(client.get());
    has_room = bytes_ <= most_bytes_;
  }
  for (const auto& each : slow) each->GiveUp();
  return has_room;
}

void UntakenAnswers::Send(const std::shared_ptr<Client>& client, size_t bytes) {
  Clients slow;
  {
    absl::MutexLock lock(&mutex_);
    Count(client, bytes);
    sending_.push_back(client.get());
    slow = TakeSlow(client.get());
  }
  for (const auto& each : slow) each->GiveUp();
}

void UntakenAnswers::Remove(const Client* client) {
  absl::MutexLock lock(&mutex_);
  Erase(client);
}

void UntakenAnswers::Count(const std::shared_ptr<Client>& client, size_t bytes) {
  Erase(client.get());
  entries_[client.get()] = {client, bytes};
  bytes_ += bytes;
}

UntakenAnswers::Clients UntakenAnswers::TakeSlow(const Client* beside) {
  Clients slow;
  while (bytes_ > most_bytes_ && !sending_.empty() && sending_.front() != beside) {
    const Client* const slowest = sending_.front();
    if (auto client = entries_[slowest].client.lock()) slow.push_back(std::move(client));
    Erase(slowest);
  }
  return slow;
}

void UntakenAnswers::Erase(const Client* client) {
  const auto found = entries_.find(client);
  if (found == entries_.end()) return;
  bytes_ -= found->second.bytes;
  entries_.erase(found);
  sending_.remove(client);
}

}  // namespace moed::http
