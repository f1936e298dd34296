#include "core/kernels/cuda/graph_stream.h"

#include <functional>
#include <utility>

#include "core/base/status.h"

namespace moed {
namespace {

constexpr size_t kMostSeen = 4096;  // hashes

template <class T>
void Append(const T& value, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

GraphStream::~GraphStream() { Synchronize().IgnoreError(); }

void GraphStream::Launch(const Kernel& kernel, const LaunchShape& shape, std::span<const std::byte> arguments) {
  if (gathered_.size() == most_launches_) {
    too_long_ = true;
    LaunchGathered();
  }
  Append(kernel.function, bytes_);
  Append(kernel.run, bytes_);
  Append(shape, bytes_);
  gathered_.push_back({kernel, shape, bytes_.size(), arguments.size()});
  bytes_.append(reinterpret_cast<const char*>(arguments.data()), arguments.size());
}

void GraphStream::Begin() {
  LaunchGathered();
  too_long_ = false;
}

void GraphStream::LaunchGathered() {
  if (gathered_.empty()) return;
  if (before_launches_ != nullptr) before_launches_(*stream_);
  if (LaunchGraph* const graph = GraphOfGathered(); graph != nullptr) {
    stream_->LaunchAll(*graph);
  } else {
    for (const Gathered& launch : gathered_) stream_->Launch(launch.kernel, launch.shape, ArgumentsOf(launch));
  }
  gathered_.clear();
  bytes_.clear();
}

LaunchGraph* GraphStream::GraphOfGathered() {
  if (gathered_.size() < 2 || too_long_ || !makes_graphs_) return nullptr;
  if (const auto found = by_list_.find(bytes_); found != by_list_.end()) {
    kept_.splice(kept_.begin(), kept_, found->second);
    return kept_.front().graph.get();
  }
  if (seen_.size() == kMostSeen) seen_.clear();
  const bool first_time = seen_.insert(std::hash<std::string_view>()(bytes_)).second;
  return first_time ? nullptr : Keep();
}

LaunchGraph* GraphStream::Keep() {
  std::vector<KernelLaunch> launches;
  for (const Gathered& launch : gathered_) launches.push_back({launch.kernel, launch.shape, ArgumentsOf(launch)});
  absl::StatusOr<std::unique_ptr<LaunchGraph>> made = runtime_.MakeGraph(launches);
  if (!made.ok()) {
    if (absl::IsResourceExhausted(made.status())) return nullptr;
    makes_graphs_ = false;
    failure_ = made.status();
    return nullptr;
  }
  kept_launches_ += launches.size();
  while (kept_.size() == kMostGraphs || (kept_launches_ > kMostKeptLaunches && !kept_.empty())) DropLeastUsed();
  kept_.push_front({bytes_, *std::move(made), launches.size()});
  by_list_.emplace(kept_.front().list, kept_.begin());
  return kept_.front().graph.get();
}

void GraphStream::DropLeastUsed() {
  by_list_.erase(kept_.back().list);
  kept_launches_ -= kept_.back().launches;
  left_.push_back(std::move(kept_.back().graph));
  kept_.pop_back();
}

void GraphStream::Copy(void* to, const void* from, size_t bytes) {
  Begin();
  stream_->Copy(to, from, bytes);
}

void GraphStream::Fill(void* to, uint8_t value, size_t bytes) {
  Begin();
  stream_->Fill(to, value, bytes);
}

void GraphStream::LaunchAll(LaunchGraph& graph) {
  Begin();
  stream_->LaunchAll(graph);
}

void GraphStream::Multiply(const HalfProduct& product) {
  Begin();
  stream_->Multiply(product);
}

void GraphStream::Record(ReadyEvent& event) {
  Begin();
  stream_->Record(event);
}

void GraphStream::Await(const ReadyEvent& event) {
  Begin();
  stream_->Await(event);
}

absl::Status GraphStream::Synchronize() {
  Begin();
  absl::Status status = stream_->Synchronize();
  left_.clear();
  most_launches_ = kMostLaunches;
  status.Update(std::exchange(failure_, absl::OkStatus()));
  return status;
}

}  // namespace moed
