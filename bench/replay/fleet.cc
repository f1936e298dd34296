#include "bench/replay/fleet.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "core/base/status.h"

namespace moed {
namespace {

// By mt19937_64 alone, whose numbers are the same everywhere.
template <typename T>
void Shuffle(std::vector<T>& items, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t left = items.size(); left > 1; --left) std::swap(items[left - 1], items[random() % left]);
}

absl::StatusOr<std::vector<std::string>> Topics(std::span<const TraceSequence> sequences, uint64_t seed) {
  std::set<std::string> names;
  for (const TraceSequence& sequence : sequences) {
    if (sequence.category.empty()) return InvalidArgument("a sequence of the trace has no category, by which topics are known");
    names.insert(sequence.category);
  }
  std::vector<std::string> topics(names.begin(), names.end());
  Shuffle(topics, seed);
  return topics;
}

}  // namespace

absl::StatusOr<BoxRequests> RequestsOfBox(std::span<const TraceSequence> sequences, size_t box, size_t boxes, size_t most,
                                          Balance balance, uint64_t seed) {
  MOED_ASSIGN_OR_RETURN(const std::vector<std::string> topics, Topics(sequences, seed));
  std::set<std::string> own;
  for (size_t topic = 0; topic < topics.size(); ++topic) {
    const bool here = boxes < topics.size() ? topic * boxes / topics.size() == box : topic == box % topics.size();
    if (here) own.insert(topics[topic]);
  }
  std::vector<TraceSequence> of_topics;
  for (const TraceSequence& sequence : sequences) {
    if (own.contains(sequence.category)) of_topics.push_back(sequence);
  }
  const size_t count = std::min(most, of_topics.size());
  if (count < 2) return InvalidArgument("topic \"", *own.begin(), "\": a box needs two sequences, to warm and to measure it");
  std::vector<TraceSequence> drawn = balance == Balance::kTopic ? of_topics : std::vector(sequences.begin(), sequences.end());
  Shuffle(drawn, seed + 1 + box);
  drawn.resize(count);
  BoxRequests requests;
  requests.warming.assign(drawn.begin(), drawn.begin() + static_cast<std::ptrdiff_t>(count / 2));
  requests.measured.assign(drawn.begin() + static_cast<std::ptrdiff_t>(count / 2), drawn.end());
  return requests;
}

}  // namespace moed
