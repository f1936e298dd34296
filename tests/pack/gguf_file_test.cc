#include "tools/pack/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "tests/base/damaged_bytes.h"
#include "tests/pack/gguf_writer.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tools/pack/gguf/split.h"

namespace moed {
namespace gguf_file_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

absl::StatusOr<GgufFile> Read(std::string bytes) {
  return ReadGguf(std::shared_ptr<const RandomAccessFile>(MakeMemoryFile("x.gguf", std::move(bytes))));
}

TestGguf Good() {
  TestGguf file;
  file.String("general.architecture", "test").U32("a.number", 7).F32("a.float", 0.5f).Bool("a.flag", true);
  file.Strings("a.texts", {"one", "", "\xff"}).I32s("a.numbers", {-1, 2}).F32s("a.floats", {1.5f});
  file.tensors = {{"first", {3, 5}, 0, std::string(60, 'a')},
                  {"second", {4}, 1, std::string(8, 'b')},
                  {"cube", {2, 3, 2}, 30, std::string(24, 'c')}};
  return file;
}

TEST(GgufFileTest, ReadsMetadataAndTensorsOfBothVersions) {
  for (const uint32_t version : {2, 3}) {
    TestGguf good = Good();
    good.version = version;
    const std::string bytes = good.Bytes();
    auto read = Read(bytes);
    ASSERT_TRUE(read.ok()) << read.status();
    const GgufMetadata& metadata = read->metadata;
    EXPECT_EQ(*metadata.String("general.architecture"), "test");
    EXPECT_EQ(*metadata.Int("a.number", 0, 10), 7);
    EXPECT_EQ(*metadata.Number("a.float", 0, 1), 0.5);
    EXPECT_TRUE(*metadata.BoolOr("a.flag", false));
    EXPECT_THAT(**metadata.Strings("a.texts"), ElementsAre("one", "", "\xff"));
    EXPECT_THAT(**metadata.Ints("a.numbers"), ElementsAre(-1, 2));
    EXPECT_THAT(**metadata.Numbers("a.floats"), ElementsAre(1.5));
    ASSERT_EQ(read->tensors.size(), good.tensors.size());
    for (size_t i = 0; i < good.tensors.size(); ++i) {
      const GgufTensor& tensor = read->tensors[i];
      const TestGguf::Tensor& written = good.tensors[i];
      EXPECT_EQ(tensor.name, written.name);
      EXPECT_EQ(tensor.type->id, written.type);
      EXPECT_EQ(tensor.shape, std::vector<uint64_t>(written.extents.rbegin(), written.extents.rend()));
      EXPECT_EQ(bytes.substr(tensor.offset, tensor.bytes), written.data);
    }
  }
}

TEST(GgufFileTest, MetadataSaysWhatIsWrongWithAKey) {
  auto read = Read(Good().Bytes());
  ASSERT_TRUE(read.ok()) << read.status();
  const GgufMetadata& metadata = read->metadata;
  EXPECT_THAT(std::string(metadata.Int("b", 0, 1).status().message()), HasSubstr("key b is missing"));
  EXPECT_THAT(std::string(metadata.Int("a.number", 0, 6).status().message()),
              AllOf(HasSubstr("a.number is 7"), HasSubstr("from 0 to 6")));
  EXPECT_THAT(std::string(metadata.Int("a.float", 0, 6).status().message()), HasSubstr("a.float is 0.5"));
  EXPECT_THAT(std::string(metadata.Number("a.flag", 0, 1).status().message()), HasSubstr("a.flag is true"));
  EXPECT_THAT(std::string(metadata.String("a.number").status().message()), HasSubstr("allowed: a string"));
  EXPECT_THAT(std::string(metadata.Strings("a.numbers").status().message()),
              AllOf(HasSubstr("is an array of whole numbers"), HasSubstr("allowed: an array of strings")));
  EXPECT_EQ(*metadata.IntOr("b", 3, 0, 1), 3);
  EXPECT_FALSE(metadata.BoolOr("a.number", false).ok());
}

struct BrokenFile {
  std::string name;
  std::function<void(TestGguf&)> damage;
  std::string expected;
};

TEST(GgufFileTest, RefusesWhatTheFormatForbids) {
  const BrokenFile cases[] = {
      {"version 1", [](TestGguf& f) { f.version = 1; }, "is of version 1, allowed: 2, 3"},
      {"version 4", [](TestGguf& f) { f.version = 4; }, "is of version 4"},
      {"big endian", [](TestGguf& f) { f.version = 3u << 24; }, "big endian"},
      {"many keys", [](TestGguf& f) { f.key_count = kHuge; }, "number of keys is 18446744073709551615"},
      {"a key too many",
       [](TestGguf& f) {
         f.tensors.clear();
         f.key_count = 8;
       },
       "key 7"},
      {"many tensors", [](TestGguf& f) { f.tensor_count = kHuge; }, "number of tensors is 18446744073709551615"},
      {"a tensor too many", [](TestGguf& f) { f.tensor_count = 4; }, "tensor 3"},
      {"key twice", [](TestGguf& f) { f.U32("a.number", 7); }, "key a.number appears twice"},
      {"empty key", [](TestGguf& f) { f.U32("", 7); }, "key 7 is \"\""},
      {"key of control characters", [](TestGguf& f) { f.U32("a\nb", 7); }, "key 7 is \"a\\nb\""},
      {"key not UTF-8", [](TestGguf& f) { f.U32("a\xff", 7); }, "key 7 is \"a\\xff\""},
      {"long key", [](TestGguf& f) { f.U32(std::string(65536, 'k'), 7); }, "length of key 7"},
      {"unknown type of value", [](TestGguf& f) { f.Add("k", 13, ""); }, "type of key k is 13, allowed: 0 to 12"},
      {"a bool of 2", [](TestGguf& f) { f.Add("k", 7, "\2"); }, "key k is the bool 2"},
      {"long string", [](TestGguf& f) { f.Add("k", 8, Little(kHuge)); }, "length of key k"},
      {"array of arrays", [](TestGguf& f) { f.Add("k", 9, Little<uint32_t>(9) + Little<uint64_t>(1)); }, "array of arrays"},
      {"array of unknown", [](TestGguf& f) { f.Add("k", 9, Little<uint32_t>(99) + Little<uint64_t>(1)); },
       "element type of key k is 99"},
      {"long array", [](TestGguf& f) { f.Add("k", 9, Little<uint32_t>(0) + Little(kHuge)); },
       "key k has 18446744073709551615 elements"},
      {"array beyond the file", [](TestGguf& f) { f.Add("k", 9, Little<uint32_t>(10) + Little<uint64_t>(1 << 20)); },
       "key k has 1048576 elements of at least 8 bytes"},
      {"huge element", [](TestGguf& f) { f.Add("k", 9, Little<uint32_t>(10) + Little<uint64_t>(1) + Little(kHuge)); },
       "key k holds 18446744073709551615"},
      {"alignment 0", [](TestGguf& f) { f.U32("general.alignment", 0); }, "general.alignment is 0"},
      {"alignment 24", [](TestGguf& f) { f.U32("general.alignment", 24); }, "general.alignment is 24, allowed: powers of two"},
      {"alignment a string", [](TestGguf& f) { f.String("general.alignment", "32"); }, "general.alignment is \"32\""},
      {"no name", [](TestGguf& f) { f.tensors[1].name = ""; }, "name of tensor 1 is \"\""},
      {"long name", [](TestGguf& f) { f.tensors[1].name = std::string(129, 'n'); }, "length of the name of tensor 1"},
      {"name twice", [](TestGguf& f) { f.tensors[1].name = "first"; }, "tensor \"first\" appears twice"},
      {"no dimensions", [](TestGguf& f) { f.tensors[1].extents = {}; },
       "\"second\": the number of dimensions is 0, allowed: 1 to 4"},
      {"5 dimensions",
       [](TestGguf& f) {
         f.tensors[1].extents = {1, 1, 1, 1, 1};
       },
       "number of dimensions is 5"},
      {"extent 0",
       [](TestGguf& f) {
         f.tensors[0].extents = {3, 0};
       },
       "\"first\": dimension 1 is 0"},
      {"shape too large",
       [](TestGguf& f) {
         f.tensors[0].extents = {1ull << 32, 1ull << 32};
       },
       "(4294967296, 4294967296) is larger than any file"},
      {"columns too large", [](TestGguf& f) { f.tensors[0].extents = {kHuge}; }, "is larger than any file"},
      {"unknown type", [](TestGguf& f) { f.tensors[0].type = 999; }, "\"first\": is of type 999, known: F32 (0), F16 (1)"},
      {"offset not aligned", [](TestGguf& f) { f.tensors[1].offset = 65; },
       "\"second\": the offset is 65, allowed: multiples of 32"},
      {"offset beyond", [](TestGguf& f) { f.tensors[1].offset = kHuge - 31; }, "\"second\" of shape (4) has 8 bytes from byte"},
      {"overlap", [](TestGguf& f) { f.tensors[1].offset = 32; }, "tensors \"first\" and \"second\" overlap"},
      {"truncated", [](TestGguf& f) { f.tensors[2].data.pop_back(); },
       "has 24 bytes from byte 96 of the data, which has 119: the file is truncated"},
  };
  for (const BrokenFile& broken : cases) {
    TestGguf file = Good();
    broken.damage(file);
    const absl::Status status = Read(file.Bytes()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << broken.name;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("x.gguf"), HasSubstr(broken.expected))) << broken.name;
  }
  EXPECT_THAT(std::string(Read("").status().message()),
              HasSubstr("the magic number at byte 0 needs 4 bytes, the file has 0 more"));
  EXPECT_THAT(std::string(Read("GGML....").status().message()), HasSubstr("a GGUF file begins with \"GGUF\""));
}

TEST(GgufFileTest, RefusesEveryTruncation) {
  ForEachTruncation(Good().Bytes(), {},
                    [](std::string damaged, size_t size) { EXPECT_FALSE(Read(std::move(damaged)).ok()) << size; });
}

TEST(GgufFileTest, WhateverItAcceptsLiesInTheFile) {
  const std::string bytes = Good().Bytes();
  int accepted = 0;
  ForGarbled(bytes, {}, 20000, 5, [&](std::string damaged, size_t at) {
    const size_t size = damaged.size();
    const auto read = Read(std::move(damaged));
    if (!read.ok()) return;
    ++accepted;
    for (const GgufTensor& tensor : read->tensors) {
      ASSERT_LE(tensor.offset, size) << at;
      ASSERT_LE(tensor.bytes, size - tensor.offset) << at;
    }
  });
  EXPECT_GT(accepted, 100);
}

// The first part has the metadata, each one tensor.
std::vector<TestGguf> Parts(uint32_t count) {
  const TestGguf whole = Good();
  std::vector<TestGguf> parts(count);
  parts[0].keys = whole.keys;
  for (uint32_t i = 0; i < count; ++i) {
    parts[i].U32("split.no", i).U32("split.count", count).U32("split.tensors.count", count);
    parts[i].tensors = {whole.tensors[i]};
  }
  return parts;
}

std::string PartName(int i) { return "x-0000" + std::to_string(i + 1) + "-of-00003.gguf"; }

TEST(GgufSplitTest, AnyPartOpensTheWhole) {
  TemporaryFolder folder;
  const std::vector<TestGguf> parts = Parts(3);
  for (int i = 0; i < 3; ++i) WriteContents(folder / PartName(i), parts[i].Bytes());
  for (int i = 0; i < 3; ++i) {
    auto model = OpenGguf(folder / PartName(i));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->path(), folder / PartName(0));
    EXPECT_EQ(model->files.size(), 3u);
    EXPECT_EQ(*model->metadata.String("general.architecture"), "test");
    ASSERT_EQ(model->tensors.size(), 3u);
    EXPECT_EQ(model->Find("cube")->file->path(), folder / PartName(2));
    EXPECT_EQ(model->Find("none"), nullptr);
  }
}

TEST(GgufSplitTest, PartsMustBelongTogether) {
  const struct {
    std::function<void(std::vector<TestGguf>&)> damage;
    std::vector<std::string> expected;
  } cases[] = {
      {[](auto& p) { p.pop_back(); }, {PartName(2), "is missing", "part 3 of 3"}},
      {[](auto& p) { std::swap(p[1], p[2]); }, {PartName(1), "is part 3 of 3", "expected part 2 of 3"}},
      {[](auto& p) { p[2].tensors = p[1].tensors; }, {"\"second\" is in both", PartName(1), PartName(2)}},
      {[](auto& p) { p[2].tensors.clear(); }, {"the parts have 2 tensors, split.tensors.count says 3"}},
      {[](auto& p) { p[1].Remove("split.tensors.count"); }, {PartName(1), "split.tensors.count is missing"}},
      {[](auto& p) { p[1].Remove("split.count"); }, {PartName(1), "is part 1 of 1"}},
      {[](auto& p) {
         p[0].Remove("split.no");
         p[0].U32("split.no", 3);
       },
       {PartName(0), "split.no is 3, allowed: a whole number from 0 to 2"}},
  };
  for (const auto& [damage, expected] : cases) {
    TemporaryFolder folder;
    std::vector<TestGguf> parts = Parts(3);
    damage(parts);
    for (size_t i = 0; i < parts.size(); ++i) WriteContents(folder / PartName(static_cast<int>(i)), parts[i].Bytes());
    const absl::Status status = OpenGguf(folder / PartName(0)).status();
    EXPECT_FALSE(status.ok());
    for (const std::string& text : expected) EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
  TemporaryFolder folder;
  WriteContents(folder / "renamed.gguf", Parts(3)[1].Bytes());
  EXPECT_THAT(std::string(OpenGguf(folder / "renamed.gguf").status().message()),
              HasSubstr("expected a name that ends with -00002-of-00003.gguf"));
}

}  // namespace gguf_file_test
}  // namespace moed
