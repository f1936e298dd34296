#include "core/expert/learning/token_table.h"

#include <vector>

#include "tests/expert/provider_rig.h"

namespace moed {
namespace token_table_test {

using testing::Each;
using testing::FloatNear;

constexpr float kStep = 1 / 255.f;  // a value is rounded to

ExpertModelShape Shape(std::span<const LayerId> layers, int experts, int top_k) {
  return {.moe_layers = layers, .experts_per_layer = experts, .top_k = top_k};
}

// A table of one layer with what its tokens are measured against.
class OneLayer {
 public:
  explicit OneLayer(int experts, int top_k = 2, float base = .25f, float rest = 0)
      : base_(static_cast<size_t>(experts), base),
        rest_(static_cast<size_t>(experts), rest),
        table_(Shape(std::span(kLayers).first(1), experts, top_k), 1 << 16, 1) {}

  void Occurs(TokenId token, const std::vector<int32_t>& chosen) {
    std::vector<ExpertChoice> choices;
    std::vector<float> targets = rest_;
    for (const int32_t expert : chosen) {
      choices.push_back({expert, .5f});
      targets[static_cast<size_t>(expert)] = 1;
    }
    const int row = table_.FindOrAdd(token);
    table_.Learn(row, 0, choices, targets, {base_, rest_});
    table_.CountOccurrence(row);
  }
  std::vector<float> Values(TokenId token) const {
    std::vector<float> values(base_.size());
    table_.Values(table_.Find(token), 0, {base_, rest_}, values);
    return values;
  }
  TokenTable& table() { return table_; }

 private:
  const std::vector<float> base_, rest_;
  TokenTable table_;
};

TEST(TokenTable, KeepsTheTokensSeenLastInBoundedMemory) {
  TokenTable table(StoreContext(), 64 << 10, 1);
  const size_t bytes = table.memory_bytes();
  EXPECT_LE(bytes, 64u << 10);
  EXPECT_GT(bytes, 60u << 10);
  for (int token = 0; token < 100'000; ++token) table.FindOrAdd(TokenId(token));
  EXPECT_EQ(table.memory_bytes(), bytes);
  EXPECT_EQ(table.Find(TokenId(0)), TokenTable::kNoRow);
  EXPECT_NE(table.Find(TokenId(99'999)), TokenTable::kNoRow);
  // A token that returns all the time stays, however many pass by.
  for (int token = 0; token < 100'000; ++token) {
    table.FindOrAdd(TokenId(7));
    table.FindOrAdd(TokenId(token));
  }
  EXPECT_NE(table.Find(TokenId(7)), TokenTable::kNoRow);
}

// The models of today: what 4,096 tokens take is a 128th of a budget that they are served in.
TEST(TokenTable, HoldsThousandsOfTokensOfLargeModels) {
  std::vector<LayerId> layers;
  for (int layer = 0; layer < 48; ++layer) layers.push_back(LayerId(layer));
  EXPECT_GE(TokenTable(Shape(layers, 128, 8), 20 << 20, 1).rows(), 4096u);
  EXPECT_GE(TokenTable(Shape(layers, 512, 10), 24 << 20, 1).rows(), 4096u);
}

// (1 base + used) / (1 + occurrences), whether an expert has an entry or not.
TEST(TokenTable, ValuesAreAveragesThatBeginAtTheBase) {
  OneLayer layer(8);
  for (int times = 1; times <= 10; ++times) {
    layer.Occurs(TokenId(3), {5, times % 2});
    const std::vector<float> values = layer.Values(TokenId(3));
    const auto average = [times](int used) { return (.25f + static_cast<float>(used)) / (1 + static_cast<float>(times)); };
    EXPECT_NEAR(values[5], average(times), times * kStep);
    EXPECT_NEAR(values[1], average((times + 1) / 2), times * kStep);
    EXPECT_NEAR(values[7], average(0), kStep);
  }
}

TEST(TokenTable, WhoHasNoEntryComesNearerToTheRest) {
  OneLayer layer(16, 2, .3f, .1f);
  for (int i = 0; i < 3; ++i) layer.Occurs(TokenId(3), {0, 1});
  const std::vector<float> values = layer.Values(TokenId(3));
  EXPECT_THAT(std::vector(values.begin() + 2, values.end()), Each(FloatNear(.1f + .2f / 4, kStep)));
}

// Eight entries for two experts a token: those that pass by once take each other's.
TEST(TokenTable, ExpertsThatAreUsedOftenKeepTheirEntries) {
  OneLayer layer(64);
  for (int i = 0; i < 40; ++i) layer.Occurs(TokenId(3), {7, 8 + i});
  const std::vector<float> values = layer.Values(TokenId(3));
  EXPECT_GT(values[7], .9f);
  EXPECT_GT(values[47], .05f);  // the one that came last
  EXPECT_LT(values[20], .05f);
}

TEST(TokenTable, AReplacedRowForgets) {
  TokenTable table(Shape(std::span(kLayers).first(1), 8, 2), 1, 1);  // one set
  const std::vector<float> ones(8, 1), zeros(8);
  const ExpertChoice choices[] = {{4, .5f}};
  const int row = table.FindOrAdd(TokenId(1));
  table.Learn(row, 0, choices, ones, {zeros, zeros});
  table.CountOccurrence(row);
  for (int token = 2; table.Find(TokenId(1)) != TokenTable::kNoRow; ++token) table.FindOrAdd(TokenId(token));
  const int again = table.FindOrAdd(TokenId(1));
  EXPECT_EQ(table.occurrences(again), 0);
  std::vector<float> values(8);
  table.Values(again, 0, {zeros, zeros}, values);
  EXPECT_THAT(values, Each(0.f));
}

}  // namespace token_table_test
}  // namespace moed
