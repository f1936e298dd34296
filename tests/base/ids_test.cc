#include "core/base/ids.h"

#include <type_traits>

#include "absl/container/flat_hash_set.h"
#include "gtest/gtest.h"

namespace moed {
namespace {

static_assert(!std::is_convertible_v<int, LayerId> && !std::is_convertible_v<LayerId, int>);
static_assert(!std::is_convertible_v<LayerId, TokenId> && !std::is_constructible_v<SequenceId, RequestId>);

TEST(IdsTest, CompareByValue) {
  EXPECT_EQ(LayerId(3), LayerId(3));
  EXPECT_LT(LayerId(-1), LayerId());
  EXPECT_EQ(TokenId(7).value(), 7);
}

TEST(IdsTest, ExpertsAreOrderedByLayerFirst) {
  EXPECT_LT((ExpertKey{LayerId(1), 9}), (ExpertKey{LayerId(2), 0}));
  EXPECT_LT((ExpertKey{LayerId(2), 0}), (ExpertKey{LayerId(2), 1}));
  EXPECT_LT((CachedKey{LayerId(2), 1, 0}), (CachedKey{LayerId(2), 1, 1}));
}

TEST(IdsTest, AnExpertIsCachedOncePerPrecision) {
  const CachedKey reference{LayerId(4), 5, kReferencePrecision};
  const CachedKey coarse{LayerId(4), 5, 1};
  EXPECT_NE(reference, coarse);
  EXPECT_EQ(reference.expert_key(), coarse.expert_key());
}

TEST(IdsTest, EveryPartOfAKeyIsHashed) {
  absl::flat_hash_set<CachedKey> keys;
  for (int layer = 0; layer < 8; ++layer) {
    for (int expert = 0; expert < 16; ++expert) {
      for (Precision precision = 0; precision < 3; ++precision) keys.insert({LayerId(layer), expert, precision});
    }
  }
  EXPECT_EQ(keys.size(), 8u * 16 * 3);
  absl::flat_hash_set<size_t> hashes;
  for (const CachedKey& key : keys) hashes.insert(absl::Hash<CachedKey>()(key));
  EXPECT_EQ(hashes.size(), keys.size());
}

}  // namespace
}  // namespace moed
