// make_random_store OUT TOKENIZER_JSON BYTES: a store of about BYTES of random q8 experts (Qwen2-MoE shape), for tests of memory
// and load that need a size, not a language. Deterministic.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/model/spec.h"
#include "core/quant/encoding.h"
#include "core/store/writer.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/store/made_up_store.h"
#include "tools/pack/plan.h"

namespace moed {
namespace {

constexpr int kExperts = 32;
constexpr int kVariants = 8;  // distinct encoded segments for each part; experts take them in turn

ModelSpec Spec(uint64_t bytes) {
  ModelSpec spec;
  spec.family = "qwen2_moe";
  spec.hidden = 768;
  spec.heads = 6;
  spec.kv_heads = 2;
  spec.head_dim = 128;
  spec.vocabulary = 4096;
  spec.max_positions = 2048;
  spec.rms_eps = 1e-6f;
  spec.tied_embeddings = true;
  spec.qkv_bias = true;
  spec.experts = kExperts;
  spec.top_k = 4;
  spec.expert_ffn = 512;
  spec.shared_ffn = 512;
  spec.shared_gate = true;
  const uint64_t expert = 3 * PackedBytes(FormatId::kQ8, spec.expert_ffn, spec.hidden);
  spec.layers = static_cast<int>(CeilDiv(static_cast<int64_t>(bytes), static_cast<int64_t>(expert * kExperts)));
  spec.moe.assign(static_cast<size_t>(spec.layers), true);
  spec.eos = {TokenId(0)};
  return spec;
}

class RandomWeights {
 public:
  std::vector<float> Matrix(int rows, int cols) {
    std::normal_distribution<float> normal(0, 0.05f);
    std::vector<float> weights(static_cast<size_t>(rows) * static_cast<size_t>(cols));
    for (float& w : weights) w = normal(random_);
    return weights;
  }
  std::vector<std::byte> Packed(FormatId format, int rows, int cols) {
    std::vector<std::byte> packed(PackedBytes(format, rows, cols));
    const absl::Status encoded = EncodeRows(format, Matrix(rows, cols).data(), rows, cols, packed);
    MOED_CHECK(encoded.ok());
    return packed;
  }

 private:
  std::mt19937 random_{1};
};

std::vector<std::byte> VectorBytes(const TensorInfo& tensor, const ModelSpec& spec) {
  std::vector<float> values(static_cast<size_t>(tensor.cols), tensor.name.ends_with("_bias") ? 0.0f : 1.0f);
  if (tensor.name == kInverseFrequencies) values = InverseFrequencies(spec);
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  return {bytes, bytes + values.size() * sizeof(float)};
}

absl::StatusOr<StoreDescription> Describe(const ModelSpec& spec, const std::string& tokenizer_json) {
  MOED_ASSIGN_OR_RETURN(StoreDescription description, DescribeMadeUpStore(spec, FormatId::kQ8));
  MOED_ASSIGN_OR_RETURN(description.tokenizer, CompileTokenizer(tokenizer_json));
  return description;
}

absl::Status Write(const std::string& path, const std::string& tokenizer_json, uint64_t bytes) {
  const ModelSpec spec = Spec(bytes);
  MOED_ASSIGN_OR_RETURN(const StoreDescription description, Describe(spec, tokenizer_json));
  MOED_ASSIGN_OR_RETURN(auto writer, StoreWriter::Open(path, description, {}));
  RandomWeights random;
  for (size_t i = 0; i < description.trunk.size(); ++i) {
    const TensorInfo& tensor = description.trunk[i];
    if (writer->HasTensor(i)) continue;
    MOED_RETURN_IF_ERROR(writer->AppendTensor(
        i, tensor.vector ? VectorBytes(tensor, spec) : random.Packed(tensor.format, tensor.rows, tensor.cols)));
  }
  std::vector<std::vector<std::byte>> variants[kExpertParts];
  for (const ExpertSegment& segment : description.precisions[0].layers[0].segments) {
    for (int v = 0; v < kVariants; ++v) {
      variants[static_cast<size_t>(segment.part)].push_back(random.Packed(FormatId::kQ8, segment.rows, segment.cols));
    }
  }
  for (const LayerId layer : description.moe_layers) {
    for (int expert = 0; expert < spec.experts; ++expert) {
      for (const ExpertSegment& segment : description.precisions[0].layers[0].segments) {
        const auto& bytes_of_part = variants[static_cast<size_t>(segment.part)][static_cast<size_t>(expert % kVariants)];
        const CachedKey key{layer, expert, kReferencePrecision};
        if (!writer->HasExpert(key, segment.part)) MOED_RETURN_IF_ERROR(writer->AppendExpert(key, segment.part, bytes_of_part));
      }
    }
  }
  return writer->Finish();
}

}  // namespace
}  // namespace moed

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: make_random_store OUT TOKENIZER_JSON BYTES\n");
    return 2;
  }
  std::ostringstream tokenizer;
  tokenizer << std::ifstream(argv[2]).rdbuf();
  const absl::Status status = moed::Write(argv[1], tokenizer.str(), std::strtoull(argv[3], nullptr, 10));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
