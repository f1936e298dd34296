// What requantising loses: measured while encoding, printed at the end.
#include "tools/pack/encoding_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/executor.h"
#include "tests/pack/command.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tools/pack/encoder.h"
#include "tools/pack/safetensors.h"

namespace moed {
namespace encoding_error_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRows = 2000, kCols = 301;  // several pieces
constexpr int kSampled = 8;               // rows of each

TEST(EncodingErrorTest, IsThatOfTheFirstPanelOfEveryPiece) {
  const std::string file = Safetensors({{"m", RandomTensor("BF16", {kRows, kCols}, 3)}});
  const auto read = ReadSafetensors(std::shared_ptr<const RandomAccessFile>(MakeMemoryFile("x.safetensors", file)));
  ASSERT_TRUE(read.ok()) << read.status();
  const MatrixJob job{&read->front(), {{{FormatId::kBF16}}, {{FormatId::kQ8}}, {{FormatId::kQ4}}, {{FormatId::kQ2}}}};
  const std::unique_ptr<Executor> executor = MakeThreadPool(3);
  std::vector<EncodingError> sums(job.targets.size());
  std::vector<float> weights(kSampled * kCols);  // of the piece, as bf16 has them, which is exact
  const auto check = [&](size_t, size_t index, std::span<const std::byte> bytes, const EncodingError& error) {
    sums[index].Add(error);
    const FormatId format = job.targets[index].encoding.format;
    EncodingError expected;
    for (int row = 0; row < kSampled; ++row) {
      std::vector<float> decoded(kCols);
      DecodeRow(format, bytes.data(), kCols, row, decoded.data());
      for (int column = 0; column < kCols; ++column) {
        float& weight = weights[static_cast<size_t>(row) * kCols + column];
        if (index == 0) weight = decoded[column];
        expected.lost += (double{weight} - decoded[column]) * (double{weight} - decoded[column]);
        expected.weights += double{weight} * weight;
      }
    }
    EXPECT_DOUBLE_EQ(error.lost, expected.lost) << FormatOf(format).name;
    EXPECT_DOUBLE_EQ(error.weights, expected.weights);
    return absl::OkStatus();
  };
  ASSERT_TRUE(TensorEncoder(*executor).EncodeMatrices({&job, 1}, check).ok());
  EXPECT_EQ(sums[0].lost, 0);
  for (size_t i = 1; i < sums.size(); ++i) EXPECT_GT(sums[i].relative(), 2 * sums[i - 1].relative());
}

TEST(EncodingErrorTest, IsPrintedForWhatWasRequantised) {
  TemporaryFolder folder;
  MakeTinyCheckpoint("olmoe").Write(folder / "in");
  const CommandResult lossy =
      RunPack({folder / "in", folder / "lossy", "--expert-formats", "keep,q4,q2", "--trunk-format", "q8"});
  ASSERT_EQ(lossy.exit_code, 0) << lossy.err;
  EXPECT_THAT(lossy.out, AllOf(HasSubstr("lost in encoding"), HasSubstr("trunk: 0."), HasSubstr("experts q4: gate "),
                               HasSubstr("experts q2: gate "), HasSubstr(", down "), Not(HasSubstr("bf16"))));
  const CommandResult exact = RunPack({folder / "in", folder / "exact", "--expert-formats", "keep", "--trunk-format", "keep"});
  ASSERT_EQ(exact.exit_code, 0) << exact.err;
  EXPECT_THAT(exact.out, Not(HasSubstr("lost")));
}

}  // namespace encoding_error_test
}  // namespace moed
