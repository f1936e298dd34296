#include "tools/pack/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "core/base/executor.h"
#include "core/quant/half.h"
#include "core/quant/safetensors_types.h"
#include "tests/base/damaged_bytes.h"
#include "tests/base/damaged_json.h"
#include "tests/io/lying_file.h"
#include "tests/pack/encoded_matrix.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tools/pack/encoder.h"
#include "tools/pack/unpackable.h"

namespace moed {
namespace safetensors_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<SourceTensor>> Read(std::string bytes) {
  return ReadSafetensors(std::shared_ptr<const RandomAccessFile>(MakeMemoryFile("x.safetensors", std::move(bytes))));
}

std::string WithHeader(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + std::string(header) + std::string(data_bytes, '\1');
}

TEST(SafetensorsTest, ReadsNamesShapesAndPlaces) {
  const TestTensors tensors = {{"a", RandomTensor("F32", {3, 5}, 1)},
                               {"b", RandomTensor("BF16", {7}, 2)},
                               {"c", RandomTensor("F16", {2, 2, 2}, 3)},
                               {"empty", RandomTensor("F16", {0, 9}, 4)}};
  const std::string bytes = Safetensors(tensors);
  auto read = Read(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), tensors.size());
  for (const SourceTensor& tensor : *read) {
    const TestTensor& expected = tensors.at(tensor.name);
    EXPECT_EQ(tensor.type->name, expected.dtype);
    EXPECT_EQ(tensor.shape, expected.shape);
    EXPECT_EQ(bytes.substr(tensor.offset, tensor.bytes), expected.bytes);
  }
}

TEST(SafetensorsTest, NumbersOfEveryTypeBecomeTheSameFloats) {
  const std::vector<float> numbers = {0.0f, -0.0f, 1.0f, -2.5f, 0x1p-14f, 448.0f, 0x1.8p-20f};  // exact in all types
  for (const BlockType& type : SafetensorsTypes()) {
    if (!type.is_numbers()) continue;
    std::string bytes;
    for (const float number : numbers) {
      const uint16_t half = type.name == "F16" ? FloatToFloat16(number) : FloatToBFloat16(number);
      bytes.append(type.block_bytes == 4 ? reinterpret_cast<const char*>(&number) : reinterpret_cast<const char*>(&half),
                   type.block_bytes);
    }
    auto read = Read(Safetensors({{"v", {std::string(type.name), {numbers.size()}, bytes}}}));
    ASSERT_TRUE(read.ok()) << read.status();
    InlineExecutor executor;
    const auto same = [&](size_t, std::span<const std::byte> found) {
      EXPECT_EQ(found.size(), numbers.size() * sizeof(float));
      EXPECT_EQ(std::memcmp(found.data(), numbers.data(), found.size()), 0) << type.name;
      return absl::OkStatus();
    };
    EXPECT_TRUE(TensorEncoder(executor).EncodeVector((*read)[0], same).ok());
  }
}

TEST(SafetensorsTest, RefusesWhatTheFormatForbids) {
  const uint64_t huge = UINT64_MAX, above_limit = 100'000'001;
  const auto length = [](uint64_t value) { return std::string(reinterpret_cast<const char*>(&value), 8); };
  const struct {
    std::string bytes;
    std::string expected;
  } cases[] = {
      {"", "at least 8 bytes, this one has 0"},
      {"1234567", "at least 8 bytes, this one has 7"},
      {length(huge) + "{}", "length is 18446744073709551615, expected at most 2"},
      {length(3) + "{}", "length is 3, expected at most 2"},
      {length(above_limit) + std::string(above_limit, ' '), "expected at most 100000000"},
      {WithHeader("{", 0), "not valid JSON"},
      {WithHeader("[1]", 0), "expected a JSON object, found array"},
      {WithHeader(std::string(100000, '['), 0), "nested more than 64 deep"},
      {WithHeader(R"({"a":1})", 0), "tensor \"a\": its entry is number"},
      {WithHeader(R"({"a":{"dtype":"F32","shape":[1]}})", 4), "no \"data_offsets\""},
      {WithHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":0}})", 4), "4 keys"},
      {WithHeader(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})", 4),
       "dtype is \"I8\", expected one of BF16, F16, F32"},
      {WithHeader(R"({"a":{"dtype":3,"shape":[4],"data_offsets":[0,4]}})", 4), "dtype is 3"},
      {WithHeader(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), "shape holds -1"},
      {WithHeader(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4), "shape holds 1.5"},
      {WithHeader(R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4), "shape is number"},
      {WithHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), "takes 8 bytes, its data_offsets span 4"},
      {WithHeader(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4), "larger than any file"},
      {WithHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4), "3 numbers, expected 2"},
      {WithHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4), "are 4..0"},
      {WithHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4), "within the file's 4 bytes of data"},
      {WithHeader(
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12),
       "tensor \"b\" begins at byte 4 of the data, inside \"a\""},
      {WithHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8), "bytes 0..4 of the data"},
      {WithHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5), "end at byte 4 of the data, expected 5"},
      {WithHeader(
           R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
       "\"a\" appears twice"},
      {WithHeader(R"({"a":{"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]}})", 4), "\"dtype\" appears twice"},
      {WithHeader(R"({"__metadata__":{"format":1}})", 0), "__metadata__"},
  };
  for (const auto& [bytes, expected] : cases) {
    const absl::Status status = Read(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << expected;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("x.safetensors"), HasSubstr(expected)));
  }
}

TEST(SafetensorsTest, RefusesEveryTruncation) {
  const std::string bytes = Safetensors({{"a", RandomTensor("F32", {3}, 1)}, {"b", RandomTensor("BF16", {5, 2}, 2)}});
  ForEachTruncation(bytes, {}, [](std::string damaged, size_t size) { EXPECT_FALSE(Read(std::move(damaged)).ok()) << size; });
}

void ExpectInside(const std::string& bytes, const std::vector<SourceTensor>& tensors, const std::string& what) {
  for (const SourceTensor& tensor : tensors) {
    ASSERT_LE(tensor.offset, bytes.size()) << what;
    ASSERT_LE(tensor.bytes, bytes.size() - tensor.offset) << what;
  }
}

TEST(SafetensorsTest, HostileValuesAreRefusedOrLieInTheFile) {
  ForEachHostileValue(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})",
                      [](const std::string& header, const std::string& what) {
                        const std::string bytes = WithHeader(header, 8);
                        const auto read = Read(bytes);
                        if (read.ok()) return ExpectInside(bytes, *read, what);
                        EXPECT_THAT(std::string(read.status().message()), HasSubstr("x.safetensors")) << what;
                      });
}

TEST(SafetensorsTest, WhateverItAcceptsLiesInTheFile) {
  const std::string bytes = Safetensors({{"a", RandomTensor("F32", {3}, 1)}, {"b", RandomTensor("BF16", {5, 2}, 2)}});
  uint64_t header_bytes;
  std::memcpy(&header_bytes, bytes.data(), 8);
  std::mt19937_64 random(9);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string mutated = bytes;
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
      mutated[random() % (8 + header_bytes)] = static_cast<char>(random() % 2 == 0 ? '0' + random() % 10 : random());
    }
    auto read = Read(mutated);
    if (!read.ok()) continue;
    ++accepted;
    ExpectInside(mutated, *read, std::to_string(round));
  }
  EXPECT_GT(accepted, 0) << "changed names are no errors";
}

TEST(TensorEncoderTest, BytesDoNotDependOnThreadsOrChunks) {
  const uint64_t rows = 3001, cols = 301;  // several chunks, ragged panels and blocks
  auto read = Read(Safetensors({{"m", RandomTensor("BF16", {rows, cols}, 3)}}));
  ASSERT_TRUE(read.ok());
  std::vector<float> weights(rows * cols);
  std::vector<std::byte> raw((*read)[0].bytes);
  ASSERT_TRUE((*read)[0].file->ReadAt((*read)[0].offset, raw).ok());
  (*read)[0].type->decode_row(raw.data(), weights.size(), weights.data());

  std::vector<MatrixTarget> targets;
  for (const Format& format : Formats()) {
    for (const Quantizer& quantizer : Quantizers()) {
      if (Makes(quantizer.id, format.id)) targets.push_back({{format.id, quantizer.id}});
    }
  }
  for (const int threads : {1, 2, 5}) {
    const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
    std::vector<std::vector<std::byte>> packed(targets.size());
    const auto collect = [&](size_t index, std::span<const std::byte> bytes) {
      packed[index].insert(packed[index].end(), bytes.begin(), bytes.end());
      return absl::OkStatus();
    };
    ASSERT_TRUE(EncodeMatrix(*executor, (*read)[0], targets, collect).ok());
    for (size_t f = 0; f < targets.size(); ++f) {
      std::vector<std::byte> expected(PackedBytes(targets[f].encoding.format, rows, cols));
      ASSERT_TRUE(EncodeRows(targets[f].encoding, weights.data(), rows, cols, expected).ok());
      EXPECT_EQ(packed[f], expected) << EncodingName(targets[f].encoding) << " with " << threads << " threads";
    }
  }
}

TEST(TensorEncoderTest, NamesTheNumberThatDoesNotFit) {
  TestTensor matrix = RandomTensor("BF16", {3000, 100}, 3), vector = RandomTensor("F32", {10}, 4);
  const uint16_t nan = 0x7fc0;
  std::memcpy(matrix.bytes.data() + (2777 * 100 + 31) * 2, &nan, 2);
  const float infinity = INFINITY;
  std::memcpy(vector.bytes.data() + 7 * 4, &infinity, 4);
  auto read = Read(Safetensors({{"m", matrix}, {"v", vector}}));
  ASSERT_TRUE(read.ok());
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  TensorEncoder encoder(*executor);
  const auto ignore = [](size_t, std::span<const std::byte>) { return absl::OkStatus(); };
  const MatrixTarget q8{{FormatId::kQ8}};
  const absl::Status of_matrix = EncodeMatrix(*executor, (*read)[0], std::span(&q8, 1), ignore);
  EXPECT_TRUE(IsUnpackable(of_matrix));
  EXPECT_THAT(std::string(of_matrix.message()),
              AllOf(HasSubstr("x.safetensors: tensor \"m\""), HasSubstr("row 2777, column 31"), HasSubstr("nan")));
  const absl::Status of_vector = encoder.EncodeVector((*read)[1], ignore);
  EXPECT_TRUE(IsUnpackable(of_vector));
  EXPECT_THAT(std::string(of_vector.message()), AllOf(HasSubstr("tensor \"v\""), HasSubstr("element 7 is inf")));
}

// Whatever code it has: what is finished is thrown away for weights alone.
TEST(TensorEncoderTest, AReadThatFailsSaysNothingOfTheWeights) {
  const std::string bytes = Safetensors({{"m", RandomTensor("BF16", {30, 100}, 3)}, {"v", RandomTensor("F32", {10}, 4)}});
  const auto file = std::make_shared<LyingFile>("x.safetensors", bytes);
  auto read = ReadSafetensors(file);
  ASSERT_TRUE(read.ok());
  file->FailWithErrno({}, EINVAL);
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  TensorEncoder encoder(*executor);
  const auto ignore = [](size_t, std::span<const std::byte>) { return absl::OkStatus(); };
  const MatrixTarget q8{{FormatId::kQ8}};
  for (const absl::Status& status :
       {EncodeMatrix(*executor, (*read)[0], {&q8, 1}, ignore), encoder.EncodeVector((*read)[1], ignore)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_FALSE(IsUnpackable(status)) << status;
  }
}

}  // namespace safetensors_test
}  // namespace moed
