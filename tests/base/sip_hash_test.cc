#include "core/base/sip_hash.h"

#include <gtest/gtest.h>

#include <string>

namespace moed {
namespace {

// Of the paper's appendix and of the reference implementation's vectors: key 00 01 ... 0f, text 00 01 ... of so many bytes.
TEST(SipHashTest, TheReferencesVectors) {
  const SipKey key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  const struct {
    size_t bytes;
    uint64_t hash;
  } kVectors[] = {{0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd}, {8, 0x93f5f5799a932462}, {15, 0xa129ca6149be45e5}};
  for (const auto& vector : kVectors) {
    std::string text;
    for (size_t i = 0; i < vector.bytes; ++i) text += static_cast<char>(i);
    EXPECT_EQ(SipHash(key, text), vector.hash) << vector.bytes;
  }
  EXPECT_NE(SipHash({key.low + 1, key.high}, ""), SipHash(key, ""));
}

}  // namespace
}  // namespace moed
