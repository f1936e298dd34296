// Tensors that hold all experts of a layer, or gate and up together: each expert's own matrix comes out of them.
#include "tools/pack/tensor_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>

#include "core/base/executor.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/model/decoder_tensors.h"
#include "tests/pack/encoded_matrix.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tests/paths.h"
#include "tools/pack/checkpoint.h"
#include "tools/pack/safetensors.h"

namespace moed {
namespace tensor_parts_test {

using ::testing::HasSubstr;
using Tensors = absl::flat_hash_map<std::string, SourceTensor>;

constexpr char kExperts[] = "model.layers.1.mlp.experts.";

std::string Folder(const std::string& checkpoint) { return UnpackedCheckpoint(checkpoint); }

// As the file has them.
Tensors Wholes(const std::string& checkpoint) {
  auto file = OpenBuffered(Folder(checkpoint) + "/model.safetensors");
  EXPECT_TRUE(file.ok()) << file.status();
  auto read = ReadSafetensors(std::shared_ptr<const RandomAccessFile>(*std::move(file)));
  EXPECT_TRUE(read.ok()) << read.status();
  Tensors tensors;
  for (SourceTensor& tensor : *read) tensors[tensor.name] = tensor;
  return tensors;
}

std::vector<std::byte> Bytes(const SourceTensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes);
  EXPECT_TRUE(tensor.file->ReadAt(tensor.offset, bytes).ok());
  return bytes;
}

std::vector<float> Floats(const SourceTensor& whole) {
  const std::vector<std::byte> bytes = Bytes(whole);
  std::vector<float> floats(bytes.size() / whole.type->block_bytes);
  whole.type->decode_row(bytes.data(), static_cast<int>(floats.size()), floats.data());
  return floats;
}

// [target][row * cols + column]
std::vector<std::vector<float>> Encoded(const SourceTensor& source, std::span<const MatrixTarget> targets) {
  const int rows = static_cast<int>(source.shape[0]), cols = static_cast<int>(source.shape[1]);
  std::vector<std::vector<std::byte>> packed(targets.size());
  InlineExecutor executor;
  const absl::Status status = EncodeMatrix(executor, source, targets, [&](size_t index, std::span<const std::byte> bytes) {
    packed[index].insert(packed[index].end(), bytes.begin(), bytes.end());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  std::vector<std::vector<float>> decoded(targets.size(), std::vector<float>(static_cast<size_t>(rows) * cols));
  for (size_t i = 0; i < targets.size(); ++i) {
    for (int r = 0; r < rows; ++r) {
      DecodeRow(targets[i].encoding.format, packed[i].data(), cols, r, &decoded[i][static_cast<size_t>(r) * cols]);
    }
  }
  return decoded;
}

constexpr MatrixTarget kFloats[] = {{.encoding = {FormatId::kF32}}};

TEST(TensorPartsTest, InterleavedTransposedExperts) {
  const auto checkpoint = Checkpoint::Open(Folder("gpt_oss"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const Tensors wholes = Wholes("gpt_oss");
  const std::vector<float> gate_up = Floats(wholes.at(std::string(kExperts) + "gate_up_proj"));
  const std::vector<float> down = Floats(wholes.at(std::string(kExperts) + "down_proj"));
  const int hidden = 44, ffn = 18;
  for (const int expert : {0, 4}) {
    const auto part = [&](const std::string& name) {
      return Encoded(*checkpoint->Find(kExperts + std::to_string(expert) + "." + name + ".weight"), kFloats)[0];
    };
    const std::vector<float> gate = part("gate_proj"), up = part("up_proj"), out = part("down_proj");
    for (int f = 0; f < ffn; ++f) {
      for (int h = 0; h < hidden; ++h) {
        const size_t at = (static_cast<size_t>(expert) * hidden + h) * 2 * ffn + 2 * f;
        ASSERT_EQ(gate[f * hidden + h], gate_up[at]);
        ASSERT_EQ(up[f * hidden + h], gate_up[at + 1]);
        ASSERT_EQ(out[h * ffn + f], down[(static_cast<size_t>(expert) * ffn + f) * hidden + h]);
      }
    }
  }
}

// As Qwen3-VL is released, and as transformers 5 saves it: which it is shows in the shapes.
TEST(TensorPartsTest, ExpertsWithInputsBeforeOutputsOrBehindThem) {
  for (const auto& [name, hidden, ffn, released] :
       {std::tuple("qwen3_vl_moe_experts", 26, 10, true), {"qwen3_vl_moe", 34, 12, false}}) {
    const auto checkpoint = Checkpoint::Open(Folder(name));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const Tensors wholes = Wholes(name);
    const std::vector<float> gate_up = Floats(wholes.at("model.language_model.layers.0.mlp.experts.gate_up_proj"));
    const std::vector<float> down = Floats(wholes.at("model.language_model.layers.0.mlp.experts.down_proj"));
    const int expert = 3;
    const auto part = [&](const std::string& of) {
      return Encoded(*checkpoint->Find("model.layers.0.mlp.experts.3." + of + ".weight"), kFloats)[0];
    };
    const auto at = [inputs_first = released](int rows, int cols, int row, int col) {
      return static_cast<size_t>(expert) * rows * cols + (inputs_first ? col * rows + row : row * cols + col);
    };
    const std::vector<float> gate = part("gate_proj"), up = part("up_proj"), out = part("down_proj");
    for (int f = 0; f < ffn; ++f) {
      for (int h = 0; h < hidden; ++h) {
        ASSERT_EQ(gate[f * hidden + h], gate_up[at(2 * ffn, hidden, f, h)]);
        ASSERT_EQ(up[f * hidden + h], gate_up[at(2 * ffn, hidden, ffn + f, h)]);
        ASSERT_EQ(out[h * ffn + f], down[at(hidden, ffn, h, f)]);
      }
    }
  }
}

// Kept, the codes mean what the definition of MXFP4 says; so they do requantised to floats.
TEST(TensorPartsTest, Mxfp4OfGateAndUpIsKept) {
  constexpr float kNumbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  constexpr MatrixTarget kTargets[] = {{.encoding = {FormatId::kMxfp4}, .keeps_blocks = true}, {.encoding = {FormatId::kBF16}}};
  const auto checkpoint = Checkpoint::Open(Folder("gpt_oss_mxfp4"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const Tensors wholes = Wholes("gpt_oss_mxfp4");
  const int hidden = 64, ffn = 32, expert = 3;
  const auto check = [&](const std::string& name, const std::string& whole, int rows, int cols, int step, int first) {
    const std::vector<std::byte> codes = Bytes(wholes.at(kExperts + whole + "_blocks"));
    const std::vector<std::byte> scales = Bytes(wholes.at(kExperts + whole + "_scales"));
    const auto found = Encoded(*checkpoint->Find(kExperts + std::to_string(expert) + "." + name + ".weight"), kTargets);
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < cols; ++c) {
        const size_t at = (static_cast<size_t>(expert) * rows * step + r * step + first) * cols + c;
        const int code = static_cast<int>(codes[at / 2]) >> (4 * (at % 2)) & 15;
        const float expected = std::ldexp(kNumbers[code], static_cast<int>(scales[at / 32]) - 127);
        ASSERT_EQ(found[0][r * cols + c], expected) << name << " " << r << " " << c;
        ASSERT_EQ(found[1][r * cols + c], expected) << name << " " << r << " " << c;
      }
    }
  };
  check("gate_proj", "gate_up_proj", ffn, hidden, 2, 0);
  check("up_proj", "gate_up_proj", ffn, hidden, 2, 1);
  check("down_proj", "down_proj", hidden, ffn, 1, 0);
}

// Numbers that say where they stand, in a file.
Tensors CountingTensor(const std::string& path, const std::string& name, int64_t rows, int64_t cols) {
  std::vector<float> numbers(rows * cols);
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  const std::string header = StrCat("{\"", name, "\":{\"dtype\":\"F32\",\"shape\":[", rows, ",", cols, "],\"data_offsets\":[0,",
                                    numbers.size() * sizeof(float), "]}}");
  const uint64_t length = header.size();
  std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char*>(&length), sizeof length) << header
                                        << std::string(reinterpret_cast<const char*>(numbers.data()),
                                                       numbers.size() * sizeof(float));
  auto read = ReadSafetensors(std::shared_ptr<const RandomAccessFile>(*OpenBuffered(path)));
  EXPECT_TRUE(read.ok()) << read.status();
  return {{name, read->front()}};
}

// Latent attention's kv_b_proj: for each head the rows of its keys and those of its values. More rows than are encoded at once,
// which end in the middle of a head.
TEST(TensorPartsTest, KeysAndValuesOfLatentsComeHeadByHead) {
  const TemporaryFolder folder;
  ModelSpec spec;
  spec.layers = 1, spec.heads = 6, spec.head_dim = 64 + 4, spec.rotary_dims = 4;
  spec.latent = {.kv_rank = 1000, .value_dim = 8};
  const int64_t rank = 1000, keys = 64, values = 8;
  Tensors tensors =
      CountingTensor(folder / "whole", "model.layers.0.self_attn.kv_b_proj.weight", spec.heads * (keys + values), rank);
  ASSERT_TRUE(DivideTensors(LatentParts(spec), tensors).ok());
  ASSERT_EQ(tensors.size(), 2u);
  const std::vector<float> k_b = Encoded(tensors.at("model.layers.0.self_attn.k_b_proj.weight"), kFloats)[0];
  const std::vector<float> v_b = Encoded(tensors.at("model.layers.0.self_attn.v_b_proj.weight"), kFloats)[0];
  for (int64_t head = 0; head < spec.heads; ++head) {
    for (int64_t i = 0; i < rank; ++i) {
      for (int64_t d = 0; d < keys; ++d) {
        ASSERT_EQ(k_b[(head * rank + i) * keys + d], static_cast<float>((head * (keys + values) + d) * rank + i));
      }
      for (int64_t d = 0; d < values; ++d) {
        ASSERT_EQ(v_b[(head * values + d) * rank + i], static_cast<float>((head * (keys + values) + keys + d) * rank + i));
      }
    }
  }
}

TEST(TensorPartsTest, WholesOfAnotherShapeOrTypeAreRefused) {
  const TensorPart part = {.name = "part", .whole = "whole", .whole_shape = {4, 6}, .rows = 2, .cols = 3, .row_stride = 6};
  const Tensors some = Wholes("gpt_oss_mxfp4");
  const auto refusal = [&](const std::string& source, TensorPart wanted) {
    Tensors tensors = {{"whole", some.at(kExperts + source)}};
    return std::string(DivideTensors(std::span(&wanted, 1), tensors).message());
  };
  EXPECT_THAT(refusal("gate_up_proj_bias", part), HasSubstr("expected (4, 6)"));
  TensorPart bytes = part;
  bytes.whole_shape = some.at(std::string(kExperts) + "down_proj_scales").shape;
  EXPECT_THAT(refusal("down_proj_scales", bytes), HasSubstr("expected numbers"));
  bytes.whole_shape = some.at(std::string(kExperts) + "down_proj_blocks").shape;
  bytes.scales = "scales";
  EXPECT_THAT(refusal("down_proj_blocks", bytes), HasSubstr("\"scales\" is missing"));
}

}  // namespace tensor_parts_test
}  // namespace moed
