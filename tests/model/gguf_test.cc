// GGUF files of the tiny checkpoints (tools/parity/make_gguf.py) become the same models.
#include <gtest/gtest.h>

#include "tests/model/packed_model.h"

namespace moed {
namespace {

std::vector<std::string> Architectures() { return {"gpt_oss_mxfp4", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe"}; }

class GgufModelTest : public testing::TestWithParam<std::string> {
 protected:
  const StoreReader& folder_ = PackedStore(GetParam(), FormatId::kBF16);
  const StoreReader& gguf_ = PackedStore(GetParam() + "/model.gguf", FormatId::kBF16);
};

TEST_P(GgufModelTest, StoresHoldTheSame) {
  const StoreDescription &a = folder_.description(), &b = gguf_.description();
  EXPECT_EQ(a.model_spec, b.model_spec);
  EXPECT_EQ(a.tokenizer, b.tokenizer);
  ASSERT_EQ(a.trunk.size(), b.trunk.size());
  for (size_t i = 0; i < a.trunk.size(); ++i) EXPECT_EQ(a.trunk[i].name, b.trunk[i].name);
}

TEST_P(GgufModelTest, LogitsAreTheSameBits) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < 40; ++i) tokens.emplace_back((i * 37 + 11) % 259);
  std::vector<Logits> logits;
  for (const StoreReader* store : {&folder_, &gguf_}) {
    PackedModel model(*store);
    MemoryProvider provider(*store);
    TestSequence sequence;
    logits.push_back(model.Feed(provider, sequence, tokens, tokens.size()));
  }
  EXPECT_EQ(logits[0].size(), tokens.size());
  EXPECT_TRUE(SameBits(logits[0], logits[1]));
}

INSTANTIATE_TEST_SUITE_P(Architectures, GgufModelTest, testing::ValuesIn(Architectures()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace moed
