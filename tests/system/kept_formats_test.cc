// Exact mode over experts whose formats are kept from checkpoints and cannot be made, and over layers whose parts differ in
// format, as in a GGUF of kind Q4_K_M: the same bits whatever the policy, capacity, batch, threads and instruction set.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/policies/table.h"
#include "core/model/expert_shapes.h"
#include "core/model/family.h"
#include "core/store/writer.h"
#include "tests/kernels/fixtures.h"
#include "tests/store/small_store.h"
#include "tests/system/demo_rig.h"
#include "tools/pack/plan.h"

namespace moed::testing {
namespace {

constexpr int kNewTokens = 3;
constexpr int kVocabulary = 300;

// Whole blocks of every format.
ModelSpec Spec() {
  ModelSpec spec;
  spec.family = "mixtral";
  spec.layers = 3, spec.hidden = 256, spec.heads = 4, spec.kv_heads = 2, spec.head_dim = 16;
  spec.vocabulary = kVocabulary, spec.max_positions = 128, spec.rms_eps = 1e-5f;
  spec.experts = 6, spec.top_k = 2, spec.expert_ffn = 256, spec.norm_topk_prob = true;
  spec.moe = {true, true, true};
  return spec;
}

// What the parts of a layer's experts are kept in.
struct Kept {
  std::string name;
  std::function<PartFormats(size_t moe_layer)> formats;
};

std::vector<Kept> Cases() {
  std::vector<Kept> cases;
  for (const Format& format : Formats()) {
    if (Makes(QuantizerId::kRtn, format.id)) continue;
    cases.push_back({std::string(format.name), [id = format.id](size_t) { return PartFormats{id, id, id}; }});
  }
  constexpr FormatId q4k = FormatId::kQ4K, q5k = FormatId::kQ5K, q6k = FormatId::kQ6K;
  cases.push_back(
      {"mixed", [](size_t layer) {
         return layer == 0 ? PartFormats{q4k, q4k, q6k} : layer == 1 ? PartFormats{q4k, q4k, q4k} : PartFormats{q5k, q4k, q6k};
       }});
  return cases;
}

StoreDescription Describe(const ModelSpec& spec, const Kept& kept) {
  StoreDescription description;
  description.model_spec = SpecToJson(spec);
  description.moe_layers = spec.MoeLayers();
  description.experts_per_layer = spec.experts;
  const PartShapes shapes = ExpertShapes(spec);
  ExpertPrecision& precision = description.precisions.emplace_back();
  for (size_t layer = 0; layer < description.moe_layers.size(); ++layer) {
    precision.layers.push_back(LayOutExpert(kept.formats(layer), shapes));
  }
  for (const TrunkTensor& tensor : (*FamilyNamed(spec.family))->trunk_tensors(spec)) {
    const bool vector = tensor.role == TensorRole::kVector;
    const FormatId format = tensor.role == TensorRole::kMatrix ? FormatId::kQ8 : FormatId::kF32;
    description.trunk.push_back({tensor.store_name, format, vector, tensor.stored_rows(), tensor.stored_cols()});
  }
  description.trunk.push_back({std::string(kInverseFrequencies), FormatId::kF32, true, 1, spec.RotaryDims() / 2});
  LayOutTrunk(description);
  return description;
}

std::vector<std::byte> Bytes(const std::vector<float>& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> TrunkBytes(const TensorInfo& tensor, const ModelSpec& spec, uint32_t seed) {
  if (tensor.name == kInverseFrequencies) return Bytes(InverseFrequencies(spec));
  if (tensor.vector) return Bytes(std::vector<float>(static_cast<size_t>(tensor.cols), 1.0f));
  return RandomMatrix(tensor.format, tensor.rows, tensor.cols, seed).bytes;
}

void WriteStore(const std::string& path, const Kept& kept) {
  const ModelSpec spec = Spec();
  const StoreDescription description = Describe(spec, kept);
  const auto writer = StoreWriter::Open(path, description, {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  uint32_t seed = 0;
  for (size_t i = 0; i < description.trunk.size(); ++i) {
    ASSERT_TRUE((*writer)->AppendTensor(i, TrunkBytes(description.trunk[i], spec, ++seed)).ok());
  }
  for (size_t layer = 0; layer < description.moe_layers.size(); ++layer) {
    for (int expert = 0; expert < spec.experts; ++expert) {
      for (const ExpertSegment& segment : description.precisions[0].layers[layer].segments) {
        const PackedMatrix matrix = RandomMatrix(segment.format, segment.rows, segment.cols, ++seed);
        ASSERT_TRUE((*writer)->AppendExpert({description.moe_layers[layer], expert}, segment.part, matrix.bytes).ok());
      }
    }
  }
  const absl::Status finished = (*writer)->Finish();
  ASSERT_TRUE(finished.ok()) << finished;
}

class KeptFormatsTest : public ::testing::TestWithParam<Kept> {
 protected:
  struct Answer {
    std::vector<TokenId> tokens;
    std::vector<float> logits;
  };

  void SetUp() override {
    options_.store = folder_ / "store";
    options_.io_backend = "buffered";  // the folder may be in memory
    ASSERT_NO_FATAL_FAILURE(WriteStore(options_.store, GetParam()));
    // The definition: scalar arithmetic, one token at a time, every expert resident.
    RigOptions options = options_;
    options.compute = "scalar";
    Rig rig(options);
    for (const auto& prompt : prompts_) {
      Answer& answer = expected_.emplace_back();
      answer.tokens = rig.Greedy(prompt, kNewTokens, 1, &answer.logits);
    }
  }

  void ExpectSameBits(Rig& rig, int chunk, const std::string& what) {
    for (size_t i = 0; i < prompts_.size(); ++i) {
      std::vector<float> logits;
      EXPECT_EQ(rig.Greedy(prompts_[i], kNewTokens, chunk, &logits), expected_[i].tokens) << what << ", prompt " << i;
      EXPECT_TRUE(moed::SameBits(logits, expected_[i].logits)) << what << ", prompt " << i;
    }
  }

  const std::vector<std::vector<TokenId>> prompts_ = {Tokens({1, 205, 30, 77, 191}), Tokens({3, 55}), Tokens({0, 70, 299, 12})};
  MemoryFolder folder_;
  RigOptions options_;
  std::vector<Answer> expected_;
};

TEST_P(KeptFormatsTest, PoliciesAndCapacities) {
  const int all = Spec().experts * Spec().layers;
  int slots = 0;
  for (const PolicyRow& policy : Policies()) {
    if (!policy.mask.empty()) continue;  // only with its mask, which is not exact
    RigOptions options = options_;
    options.policy = policy.name;
    options.predictor = "learned";
    options.slots = 1 + slots++ % 5;
    Rig rig(options);
    ExpectSameBits(rig, 3, StrCat(policy.name, " x ", options.slots, " slots"));
  }
  for (const int slots_of_lru : {1, 2, 3, 7, all}) {
    RigOptions options = options_;
    options.slots = slots_of_lru;
    Rig rig(options);
    ExpectSameBits(rig, 3, StrCat(slots_of_lru, " slots"));
  }
}

TEST_P(KeptFormatsTest, BackendsThreadsAndChunks) {
  for (const ComputeBackendRow& backend : ComputeBackends()) {
    if (!backend.supported()) continue;
    for (const int threads : {1, 2}) {
      RigOptions options = options_;
      options.compute = backend.name;
      options.threads = threads;
      Rig rig(options);
      for (const int chunk : {1, 5})
        ExpectSameBits(rig, chunk, StrCat(backend.name, " x ", threads, " threads, chunks of ", chunk));
    }
  }
}

TEST_P(KeptFormatsTest, Batches) {
  std::vector<std::vector<TokenId>> batch;
  for (int copy = 0; copy < 2; ++copy) {
    batch.insert(batch.end(), prompts_.begin(), prompts_.end());
    RigOptions options = options_;
    options.slots = 3;
    Rig rig(options);
    const auto answers = rig.GreedyTogether(batch, kNewTokens, 4);
    for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i], expected_[i % prompts_.size()].tokens) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, KeptFormatsTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace moed::testing
