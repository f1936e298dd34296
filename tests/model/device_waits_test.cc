// Every wait of a model's run on a device is needed, and every copy of what describes its work: where one is left out, the logits
// are other bits, or the run does not get to its end.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

#include "core/kernels/cuda/emulation/runtime.h"
#include "core/kernels/cuda_backend.h"
#include "tests/model/long_sequences.h"
#include "tests/model/packed_model.h"
#include "tests/model/plain_provider.h"

namespace moed {
namespace {

using emulation::NumberedCall;
using emulation::OrderCall;

// Hands out experts whose parts are still on their way to the device, each on a stream of its own.
class ArrivingExperts final : public PlainProvider {
 public:
  ArrivingExperts(const StoreReader& store, DeviceRuntime& runtime) : experts_(store), runtime_(runtime) {}
  void Begin(const LayerRouting& routing) override { experts_.Begin(routing); }
  std::optional<ReadyExpert> Next() override {
    std::optional<ReadyExpert> ready = experts_.Next();
    if (!ready) return std::nullopt;
    arriving_.push_back(std::make_unique<Arriving>(*this, std::move(ready->handle)));
    ready->handle = ExpertHandle(arriving_.back().get());
    return ready;
  }

 private:
  struct Part {
    Buffer bytes;
    std::unique_ptr<DeviceStream> stream;
    std::unique_ptr<ReadyEvent> arrived;
  };
  struct Arriving final : internal::PinnedExpert {
    Arriving(ArrivingExperts& provider, ExpertHandle expert) : provider(provider), expert(std::move(expert)) {}
    absl::StatusOr<PartBytes> WaitPart(ExpertPart part) override {
      DeviceRuntime& runtime = provider.runtime_;
      const PartBytes from = expert.Part(part).value();
      parts.push_back({runtime.Allocate(from.bytes.size(), MemoryKind::kManaged).value(), runtime.MakeStream().value(),
                       runtime.MakeEvent().value()});
      const Part& to = parts.back();
      to.stream->Copy(to.bytes.data(), from.bytes.data(), from.bytes.size());
      to.stream->Record(*to.arrived);
      return PartBytes{.bytes = {to.bytes.data(), from.bytes.size()}, .memory = MemoryKind::kManaged, .ready = to.arrived.get()};
    }
    bool HasPart(ExpertPart) const override { return true; }
    void Unpin() override {}

    ArrivingExperts& provider;
    ExpertHandle expert;
    std::vector<Part> parts;
  };

  MemoryProvider experts_;
  DeviceRuntime& runtime_;
  std::vector<std::unique_ptr<Arriving>> arriving_;  // all until the end: what was enqueued may read them
};

struct DeviceRun {
  Logits logits;
  std::vector<uint64_t> loading;  // calls by OrderCall, while the model was loaded
  std::vector<uint64_t> calls;    // all
};

// A piece of a prompt and a token, on a device that runs nothing before somebody has to wait for it. `whole`: experts are there.
DeviceRun RunOn(const StoreReader& store, const DeviceAttributes& device, bool whole, std::optional<NumberedCall> without) {
  InlineExecutor executor;
  auto emulated = emulation::MakeEmulatedRuntime({.watch = false, .without = without, .attributes = device});
  emulation::EmulatedRuntime& runtime = *emulated;
  const auto backend = MakeCudaBackend("cuda-emulated", cuda::kEmulatedKernels, std::move(emulated), executor).value();
  ArrivingExperts arriving(store, runtime);
  MemoryProvider there(store, backend->memory().shared());
  there.LetStepsBeWhole();
  ExpertProvider& provider = whole ? static_cast<ExpertProvider&>(there) : arriving;
  PackedModel model(store, {.use_backend = backend.get()});
  TestSequence sequence;
  DeviceRun run;
  const auto calls = [&] {
    std::vector<uint64_t> counts;
    for (int call = 0; call < emulation::kOrderCalls; ++call) counts.push_back(runtime.calls(static_cast<OrderCall>(call)));
    return counts;
  };
  run.loading = calls();
  run.logits = model.Feed(provider, sequence, RandomTokens(4, 1, model.spec().vocabulary), 3);
  run.calls = calls();
  return run;
}

// In a process of its own, which may do anything: whether it ends otherwise than with those logits.
bool IsMissed(const StoreReader& store, const DeviceAttributes& device, bool whole, const std::optional<NumberedCall>& without,
              const Logits& expected) {
  const pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    _exit(SameBits(RunOn(store, device, whole, without).logits, expected) ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

// But those of loading: some tensors are read by nobody.
TEST(DeviceWaits, EveryOneIsMissed) {
  const StoreReader& store = PackedStore("qwen3_moe", FormatId::kQ4);
  PackedModel scalar(store);
  MemoryProvider provider(store);
  TestSequence sequence;
  const Logits expected = scalar.Feed(provider, sequence, RandomTokens(4, 1, scalar.spec().vocabulary), 3);
  for (const DeviceAttributes& device : {emulation::kUnifiedDevice, emulation::kDiscreteDevice}) {
    const DeviceRun all = RunOn(store, device, /*whole=*/false, std::nullopt);
    EXPECT_TRUE(SameBits(all.logits, expected));
    ASSERT_FALSE(IsMissed(store, device, /*whole=*/false, std::nullopt, expected)) << "nothing is left out";
    for (const OrderCall call : {OrderCall::kRecord, OrderCall::kAwait, OrderCall::kWait}) {
      const uint64_t count = all.calls[static_cast<size_t>(call)], first = all.loading[static_cast<size_t>(call)];
      EXPECT_GT(count - first, 4);
      for (uint64_t number = first; number < count; ++number) {
        EXPECT_TRUE(IsMissed(store, device, /*whole=*/false, NumberedCall{call, number}, expected))
            << "kind " << static_cast<int>(call) << ", number " << number << (device.unified_memory ? "" : ", memory of its own");
      }
    }
    // Of whole steps there is one of each: for the piece, and for the token. Of unified memory nothing is copied.
    const DeviceRun whole = RunOn(store, device, /*whole=*/true, std::nullopt);
    EXPECT_TRUE(SameBits(whole.logits, expected));
    ASSERT_FALSE(IsMissed(store, device, /*whole=*/true, std::nullopt, expected)) << "nothing is left out";
    for (const OrderCall call : {OrderCall::kWait, OrderCall::kCopy}) {
      const uint64_t count = whole.calls[static_cast<size_t>(call)], first = whole.loading[static_cast<size_t>(call)];
      EXPECT_EQ(count - first, call == OrderCall::kCopy && device.unified_memory ? 0 : 2);
      for (uint64_t number = first; number < count; ++number) {
        EXPECT_TRUE(IsMissed(store, device, /*whole=*/true, NumberedCall{call, number}, expected))
            << "kind " << static_cast<int>(call) << ", number " << number;
      }
    }
  }
}

}  // namespace
}  // namespace moed
