// Launches that come again and again, such as those of decoded tokens, cost one launch of a graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/kernels/cuda/runtime.h"

namespace moed {

// A stream of `runtime` that gathers launches until it is asked for something else, or to begin. A list of them that came before,
// the same kernels with the same shapes and bytes of arguments, is launched as a graph; the first time they go one by one. So do
// those that are longer than kMostLaunches, or than kMostOfLongList where one was announced, as many at a time. Of graphs it
// keeps those that were used last. Where there is no memory for a graph launches go one by one; what else hinders one is told by
// the next wait, and from then on there are none.
class GraphStream final : public DeviceStream {
 public:
  static constexpr size_t kMostLaunches = 128;  // of a graph
  static constexpr size_t kMostOfLongList = 8192;
  static constexpr size_t kMostGraphs = 256;
  static constexpr size_t kMostKeptLaunches = kMostGraphs * kMostLaunches;  // of all graphs

  // Enqueues what launches need that were gathered.
  using BeforeLaunches = std::function<void(DeviceStream& stream)>;

  // The runtime outlives it, and what `before_launches` refers to. Null: launches need nothing.
  GraphStream(DeviceRuntime& runtime, std::unique_ptr<DeviceStream> stream, BeforeLaunches before_launches = nullptr)
      : runtime_(runtime), stream_(std::move(stream)), before_launches_(std::move(before_launches)) {}
  ~GraphStream() override;

  // What was gathered is the device's from here on.
  void Begin();
  // What comes until the next wait is a list that may be long.
  void BeginLongList() {
    Begin();
    most_launches_ = kMostOfLongList;
  }

  void Copy(void* to, const void* from, size_t bytes) override;
  void Fill(void* to, uint8_t value, size_t bytes) override;
  void Launch(const Kernel& kernel, const LaunchShape& shape, std::span<const std::byte> arguments) override;
  void LaunchAll(LaunchGraph& graph) override;
  void Multiply(const HalfProduct& product) override;
  void Record(ReadyEvent& event) override;
  void Await(const ReadyEvent& event) override;
  bool Idle() const override { return gathered_.empty() && stream_->Idle(); }
  absl::Status Synchronize() override;

 private:
  struct Gathered {
    Kernel kernel;
    LaunchShape shape;
    size_t first_byte = 0;  // of `bytes_`: its arguments
    size_t bytes = 0;
  };
  struct Kept {
    std::string list;
    std::unique_ptr<LaunchGraph> graph;
    size_t launches = 0;
  };

  std::span<const std::byte> ArgumentsOf(const Gathered& launch) const {
    return std::as_bytes(std::span(bytes_)).subspan(launch.first_byte, launch.bytes);
  }
  void LaunchGathered();
  // Of the gathered list; null: it has none, or is a part.
  LaunchGraph* GraphOfGathered();
  LaunchGraph* Keep();
  void DropLeastUsed();

  DeviceRuntime& runtime_;
  const std::unique_ptr<DeviceStream> stream_;
  const BeforeLaunches before_launches_;
  std::vector<Gathered> gathered_;
  std::string bytes_;  // kernels, shapes and arguments of the gathered list
  size_t most_launches_ = kMostLaunches;
  bool too_long_ = false;            // the list since the last Begin: some of it is launched
  std::unordered_set<size_t> seen_;  // hashes of lists
  std::list<Kept> kept_;             // the last used first
  size_t kept_launches_ = 0;
  std::unordered_map<std::string_view, std::list<Kept>::iterator> by_list_;
  std::vector<std::unique_ptr<LaunchGraph>> left_;  // until their runs have ended
  bool makes_graphs_ = true;
  absl::Status failure_;  // that nobody was told yet
};

}  // namespace moed
