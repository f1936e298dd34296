// The CUDA kernels in emulation, through whole models: every family's checkpoint has the logits of "scalar".
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/kernels/tested_backends.h"
#include "tests/model/long_sequences.h"
#include "tests/model/packed_model.h"

namespace moed {
namespace {

class DeviceTest : public testing::TestWithParam<std::string> {
 protected:
  // A piece of a prompt, then the rest of it, then tokens one by one.
  Logits Of(const StoreReader& store, ModelSetup setup, ComputeBackend* backend) {
    setup.use_backend = backend;
    PackedModel model(store, setup);
    MemoryProvider provider(store);
    const std::vector<TokenId> tokens = RandomTokens(14, 1, model.spec().vocabulary);
    TestSequence sequence;
    Logits all;
    size_t first = 0;
    for (const size_t count : {9, 3, 1, 1}) {
      SequenceChunk chunk = {.tokens = std::span(tokens).subspan(first, count), .kv = &sequence.kv, .first_logits = 0};
      const std::vector<Logits> logits = model.Step(provider, std::span(&chunk, 1));
      all.insert(all.end(), logits[0].begin(), logits[0].end());
      first += count;
    }
    EXPECT_EQ(all.size(), tokens.size());
    return all;
  }

  InlineExecutor executor_;
  std::unique_ptr<ComputeBackend> device_ = MakeTestedBackend(kCudaEmulated, executor_).value();
};

TEST_P(DeviceTest, HasTheBitsOfScalar) {
  const StoreReader& store = PackedStore(GetParam(), FormatId::kQ4);
  for (const KvFormat kv_format : {KvFormat::kF32, KvFormat::kQ8}) {
    const ModelSetup setup = {.page_tokens = 16, .kv_format = kv_format};
    EXPECT_TRUE(SameBits(Of(store, setup, device_.get()), Of(store, setup, nullptr)))
        << "keys and values of " << kKvFormatNames[static_cast<int>(kv_format)];
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceTest, testing::ValuesIn(CheckpointNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace moed
