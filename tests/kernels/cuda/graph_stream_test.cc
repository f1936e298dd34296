// Launches that come again are launched as graphs, and compute what they computed one by one.
#include "core/kernels/cuda/graph_stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/kernels/cuda/emulation/runtime.h"
#include "core/kernels/cuda/language.h"
#include "core/kernels/descriptions.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

struct AddArguments {
  Global<float> x;
  float number;
  int every;  // lane
};
__global__ void AddNumber(AddArguments a) {
  if (static_cast<int>(threadIdx.x) % a.every == 0) a.x[threadIdx.x] += a.number;
}

class GraphStreamTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  void Add(float number) { Launch<AddNumber>(stream_, {.block = {32}}, AddArguments{numbers(), number, 1}); }
  float* numbers() { return reinterpret_cast<float*>(buffer_.data()); }
  uint64_t graphs() const { return runtime_->launches().graphs; }
  uint64_t single() const { return runtime_->launches().single; }
  void Set(float number) { std::fill_n(numbers(), 32, number); }
  // Of numbers that were 1: what a list adds to them.
  float Sum(const std::vector<float>& list) {
    Set(1);
    for (const float number : list) Add(number);
    EXPECT_EQ(stream_.Synchronize(), absl::OkStatus());
    return numbers()[31];
  }

  // A seed of 0 runs nothing before it has to.
  const std::unique_ptr<emulation::EmulatedRuntime> runtime_ = emulation::MakeEmulatedRuntime({.seed = GetParam()});
  Buffer buffer_ = runtime_->Allocate(32 * sizeof(float), MemoryKind::kManaged).value();
  GraphStream stream_{*runtime_, runtime_->MakeStream().value()};
};

TEST_P(GraphStreamTest, AListThatCameBeforeIsAGraph) {
  for (int time = 0; time < 5; ++time) EXPECT_EQ(Sum({2, 3, 4}), 10);
  EXPECT_EQ(single(), 3);
  EXPECT_EQ(graphs(), 4);
  EXPECT_EQ(Sum({2, 3, 5}), 11);  // other arguments
  EXPECT_EQ(Sum({2, 3}), 6);      // not all of it
  EXPECT_EQ(graphs(), 4);
  EXPECT_EQ(Sum({2, 3, 4}), 10);
  EXPECT_EQ(graphs(), 5);
}

TEST_P(GraphStreamTest, OneLaunchIsNone) {
  for (int time = 0; time < 3; ++time) EXPECT_EQ(Sum({2}), 3);
  EXPECT_EQ(graphs(), 0);
}

TEST_P(GraphStreamTest, WhatIsNoLaunchKeepsItsPlace) {
  const Buffer copy = runtime_->Allocate(32 * sizeof(float), MemoryKind::kManaged).value();
  const auto other = runtime_->MakeStream().value();
  const auto event = runtime_->MakeEvent().value();
  for (int time = 0; time < 4; ++time) {
    Set(1);
    Add(2), Add(3);
    stream_.Copy(copy.data(), numbers(), 32 * sizeof(float));
    Add(4), Add(5);
    stream_.Record(*event);
    other->Await(*event);
    other->Copy(numbers() + 16, copy.data(), 16 * sizeof(float));
    EXPECT_EQ(stream_.Synchronize(), absl::OkStatus());
    EXPECT_EQ(other->Synchronize(), absl::OkStatus());
    EXPECT_EQ(numbers()[0], 15);
    EXPECT_EQ(numbers()[31], 6);
  }
  EXPECT_EQ(graphs(), 6);
}

TEST_P(GraphStreamTest, BeginsWhenItIsAsked) {
  Add(2), Add(3);
  EXPECT_EQ(single(), 0);
  EXPECT_FALSE(stream_.Idle());
  stream_.Begin();
  EXPECT_EQ(single(), 2);
  stream_.Begin();
  EXPECT_EQ(single(), 2);
}

TEST_P(GraphStreamTest, LongListsAreNone) {
  const std::vector<float> list(GraphStream::kMostLaunches + 1, 1.0f);
  for (int time = 0; time < 3; ++time) EXPECT_EQ(Sum(list), static_cast<float>(list.size() + 1));
  EXPECT_EQ(graphs(), 0);
  for (int time = 0; time < 2; ++time) EXPECT_EQ(Sum(std::vector<float>(GraphStream::kMostLaunches, 1.0f)), list.size());
  EXPECT_EQ(graphs(), 1);
}

// Until the next wait.
TEST_P(GraphStreamTest, ALongListThatIsAnnouncedIsAGraph) {
  const std::vector<float> list(2 * GraphStream::kMostLaunches, 1.0f);
  for (int time = 0; time < 3; ++time) {
    stream_.BeginLongList();
    EXPECT_EQ(Sum(list), static_cast<float>(list.size() + 1));
  }
  EXPECT_EQ(graphs(), 2);
  EXPECT_EQ(Sum(list), static_cast<float>(list.size() + 1));
  EXPECT_EQ(graphs(), 2);
}

// Those that were used last stay. None is gone before it has run.
TEST_P(GraphStreamTest, KeepsSoMany) {
  const int lists = static_cast<int>(GraphStream::kMostGraphs) + 1;
  const auto add = [&](int list) {
    Add(static_cast<float>(list)), Add(1);
    stream_.Begin();
  };
  for (int time = 0; time < 2; ++time) {
    for (int list = 0; list < lists; ++list) add(list);
  }
  EXPECT_EQ(graphs(), lists);
  EXPECT_EQ(stream_.Synchronize(), absl::OkStatus());
  add(lists - 1);
  add(1);
  EXPECT_EQ(graphs(), lists + 2);
  EXPECT_EQ(stream_.Synchronize(), absl::OkStatus());
}

TEST_P(GraphStreamTest, WithoutMemoryLaunchesGoOneByOne) {
  runtime_->RefuseMemory(true);
  for (int time = 0; time < 3; ++time) EXPECT_EQ(Sum({2, 3}), 6);
  EXPECT_EQ(graphs(), 0);
  runtime_->RefuseMemory(false);
  EXPECT_EQ(Sum({2, 3}), 6);
  EXPECT_EQ(graphs(), 1);
}

TEST_P(GraphStreamTest, WhereThereAreNoneThatIsToldOnce) {
  runtime_->RefuseGraphs();
  EXPECT_EQ(Sum({2, 3}), 6);
  Add(2), Add(3);
  EXPECT_EQ(stream_.Synchronize().code(), absl::StatusCode::kFailedPrecondition);
  for (int time = 0; time < 3; ++time) EXPECT_EQ(Sum({2, 3}), 6);
  EXPECT_EQ(graphs(), 0);
}

TEST_P(GraphStreamTest, AFaultWithinAGraphIsToldByTheNextWait) {
  for (int time = 0; time < 2; ++time) EXPECT_EQ(Sum({2, 3, 4}), 10);
  runtime_->FailLaunch(1);
  Add(2), Add(3), Add(4);
  EXPECT_EQ(stream_.Synchronize().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(graphs(), 2);
}

INSTANTIATE_TEST_SUITE_P(Seeds, GraphStreamTest, ::testing::Range(uint64_t{0}, uint64_t{4}));

struct CopyArguments {
  Global<const int32_t> from;
  Global<int32_t> to;
};
__global__ void CopyNumber(CopyArguments a) {
  if (threadIdx.x == 0) a.to[0] = a.from[0];
}

// What kernels read when each of a list has a description of its own. `flushes`: as the backend does.
std::vector<int32_t> ReadDescriptions(const DeviceAttributes& device, size_t count, bool flushes, uint64_t* copies = nullptr) {
  const auto runtime = emulation::MakeEmulatedRuntime({.watch = false, .attributes = device});
  Descriptions descriptions(*runtime);
  const Buffer read = runtime->Allocate(count * sizeof(int32_t), MemoryKind::kPinned).value();
  auto* const numbers = reinterpret_cast<int32_t*>(read.data());
  GraphStream stream(*runtime, runtime->MakeStream().value(), [&](DeviceStream& launches) {
    if (flushes) descriptions.Flush(launches);
  });
  for (int time = 1; time <= 3; ++time) {
    for (size_t i = 0; i < count; ++i) {
      const int32_t number = time * static_cast<int32_t>(i + 1);
      Launch<CopyNumber>(stream, {.block = {32}}, CopyArguments{descriptions.Copy(std::span(&number, 1)), numbers + i});
    }
    stream.Begin();
    stream.Begin();  // nothing is new
    EXPECT_EQ(stream.Synchronize(), absl::OkStatus());
    descriptions.Clear();
  }
  if (copies != nullptr) *copies = runtime->calls(emulation::OrderCall::kCopy);
  return {numbers, numbers + count};
}

// One by one, as a graph, and those of a list that is too long.
TEST(Descriptions, LieOnTheDeviceWhenTheyAreRead) {
  for (const size_t count : {size_t{5}, 2 * GraphStream::kMostLaunches + 2}) {
    std::vector<int32_t> expected;
    for (size_t i = 0; i < count; ++i) expected.push_back(3 * static_cast<int32_t>(i + 1));
    uint64_t copies = 0;
    EXPECT_EQ(ReadDescriptions(emulation::kUnifiedDevice, count, true, &copies), expected);
    EXPECT_EQ(copies, 0u);
    EXPECT_EQ(ReadDescriptions(emulation::kDiscreteDevice, count, true, &copies), expected);
    EXPECT_EQ(copies, 3 * (count / GraphStream::kMostLaunches + 1));
    EXPECT_NE(ReadDescriptions(emulation::kDiscreteDevice, count, false), expected);
  }
}

TEST(Descriptions, TellThatThereIsNoMemory) {
  for (const DeviceAttributes& device : {emulation::kUnifiedDevice, emulation::kDiscreteDevice}) {
    const auto runtime = emulation::MakeEmulatedRuntime({.attributes = device});
    Descriptions descriptions(*runtime);
    runtime->RefuseMemory(true);
    *descriptions.Take<int>(1).host = 1;
    EXPECT_EQ(descriptions.status().code(), absl::StatusCode::kResourceExhausted);
    runtime->RefuseMemory(false);
    descriptions.Clear();
    EXPECT_EQ(descriptions.status(), absl::OkStatus());
    const Described<int> taken = descriptions.Take<int>(1);
    EXPECT_EQ(taken.host == taken.device, device.unified_memory);
  }
  // Of the device alone.
  DeviceAttributes full = emulation::kDiscreteDevice;
  full.memory_bytes = 1 << 10;
  const auto runtime = emulation::MakeEmulatedRuntime({.attributes = full});
  Descriptions descriptions(*runtime);
  *descriptions.Take<int>(1).host = 1;
  EXPECT_EQ(descriptions.status().code(), absl::StatusCode::kResourceExhausted);
}

// So that the launches which read them are known again.
TEST(Descriptions, LieWhereTheyLayBefore) {
  const auto runtime = emulation::MakeEmulatedRuntime({});
  Descriptions descriptions(*runtime);
  const auto take = [&] {
    std::vector<const void*> places;
    for (const size_t bytes : {100, 300000, 7, 0, 200000}) {
      const Described<char> taken = descriptions.Take<char>(bytes);
      places.push_back(taken.host);
      places.push_back(taken.device);
    }
    return places;
  };
  take();
  descriptions.Clear();
  const std::vector<const void*> places = take();
  for (int time = 0; time < 3; ++time) {
    descriptions.Clear();
    EXPECT_EQ(take(), places);
    descriptions.Clear();
    descriptions.Take<char>(5000);  // another sequence between
  }
}

// A list of pages that grows by one seldom moves what is described behind it.
TEST(Descriptions, AListThatGrowsByLittleMovesNoOther) {
  const auto runtime = emulation::MakeEmulatedRuntime({});
  Descriptions descriptions(*runtime);
  descriptions.Take<void*>(1);
  const void* const behind = descriptions.Take<char>(1).device;
  descriptions.Clear();
  descriptions.Take<void*>(20);
  EXPECT_EQ(descriptions.Take<char>(1).device, behind);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
