// GGUF files of the tiny checkpoints, as llama.cpp's converter makes them, become the same models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <tuple>

#include "nlohmann/json.hpp"
#include "tests/model/gguf_delta.h"
#include "tests/model/packed_model.h"
#include "tools/pack/budgets.h"
#include "tools/pack/chat_settings.h"
#include "tools/pack/gguf/architecture.h"

namespace moed {
namespace {

std::string DataPath(const std::string& checkpoint, std::string_view file) {
  return std::filesystem::path(DataFolder()) / checkpoint / file;
}

std::vector<std::string> Checkpoints() {
  std::vector<std::string> names = CheckpointNames();
  std::erase_if(names, [](const std::string& name) { return !std::filesystem::exists(DataPath(name, "model.gguf.delta")); });
  return names;
}

const MemoryFolder& Folder() {
  static MemoryFolder folder;
  return folder;
}

void Write(const std::string& path, std::string_view contents) { std::ofstream(path, std::ios::binary) << contents; }

std::string GgufOf(const std::string& checkpoint) {
  const std::string path = Folder() / (checkpoint + ".gguf");
  if (std::filesystem::exists(path)) return path;
  const std::string delta = ReadText(DataPath(checkpoint, "model.gguf.delta"));
  Write(path, ApplyGgufDelta(delta, ReadText(DataPath(checkpoint, "model.safetensors"))));
  return path;
}

// One attention factor for all contexts, which the converter makes of how much longer they may become.
nlohmann::json LongRopeInGguf() {
  const double factor = std::sqrt(1 + std::log(160.0 / 96) / std::log(96.0));
  return {{"router_jitter_noise", 0.01}, {"rope_scaling", {{"short_mscale", factor}, {"long_mscale", factor}}}};
}

nlohmann::json Llama4InGguf() {
  return {{"attention_chunk_size", 8192},
          {"floor_scale", 8192},
          {"attn_scale", 0.1},
          {"no_rope_layers", {1, 1, 1, 0}},
          {"layer_types", nullptr}};
}

// What GGUF files have no key for, as the released models have it.
const std::map<std::string, nlohmann::json> kWithoutKey = {{"granitemoehybrid", {{"max_position_embeddings", 1 << 20}}},
                                                           {"nemotron_h", {{"max_position_embeddings", 1 << 20}}},
                                                           {"lfm2_moe", {{"routed_scaling_factor", 1}}},
                                                           {"phimoe", {{"router_jitter_noise", 0.01}}},
                                                           {"phimoe_longrope", LongRopeInGguf()},
                                                           {"llama4_text", Llama4InGguf()},
                                                           {"mistral4", {{"rope_scaling", {{"llama_4_scaling_beta", 0}}}}},
                                                           {"smallthinker_windows", {{"sliding_window_size", 4096}}}};

std::string FolderOf(const std::string& checkpoint) {
  const auto released = kWithoutKey.find(checkpoint);
  if (released == kWithoutKey.end()) return checkpoint;
  const std::string folder = Folder() / checkpoint;
  if (std::filesystem::exists(folder)) return folder;
  std::filesystem::copy(DataPath(checkpoint, ""), folder);
  nlohmann::json config = nlohmann::json::parse(ReadText(DataPath(checkpoint, "config.json")));
  config.merge_patch(released->second);
  Write(folder + "/config.json", config.dump());
  return folder;
}

void RoundDivisors(std::optional<FrequencyDivisors>& divided) {
  if (!divided) return;
  for (double& divisor : divided->divisors) divisor = static_cast<float>(divisor);
  divided->attention_factor = static_cast<float>(divided->attention_factor);
}

// The numbers that GGUF files have as float32. A file of an architecture that runs several families has one's name for all.
std::string AsInGguf(const std::string& spec_json) {
  ModelSpec spec = *SpecFromJson(spec_json);
  if (spec.family == "glm4_moe_lite") spec.family = "deepseek_v3";
  if (spec.family == "solar_open") spec.family = "glm4_moe";
  if (spec.family == "glm4v_moe_text") spec.family = "glm4_moe";
  if (spec.family == "sarvam_moe") spec.family = "bailing_moe_v2";
  if (spec.family == "qwen3_5_moe_text") spec.delta_net->key_heads_in_turn = true;
  for (double* number :
       {&spec.rope_theta, &spec.attention_scale, &spec.embedding_scale, &spec.residual_scale, &spec.router_scale}) {
    *number = static_cast<float>(*number);
  }
  for (Rotation& rotation : spec.more_rotations) RoundDivisors(rotation.divided);
  RoundDivisors(spec.divided);
  return SpecToJson(spec);
}

class GgufModelTest : public testing::TestWithParam<std::string> {
 protected:
  const StoreReader& folder_ = PackedStore(FolderOf(GetParam()), FormatId::kBF16);
  const StoreReader& gguf_ = PackedStore(GgufOf(GetParam()), FormatId::kBF16);
};

TEST_P(GgufModelTest, StoresHoldTheSame) {
  const StoreDescription &a = folder_.description(), &b = gguf_.description();
  EXPECT_EQ(AsInGguf(a.model_spec), AsInGguf(b.model_spec));
  const auto chat = ReadChatSettings(OpenGguf(GgufOf(GetParam()))->metadata);  // the folders have no tokenizer_config.json
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_TRUE(*WithChatSettings(a.tokenizer, *chat) == b.tokenizer);
  ASSERT_EQ(a.trunk.size(), b.trunk.size());
  for (size_t i = 0; i < a.trunk.size(); ++i) EXPECT_EQ(a.trunk[i].name, b.trunk[i].name);
}

// Heads in another order are columns of the output projection in another order, and so are the terms of its sums.
bool SumsAlike(const StoreReader& gguf) {
  const ModelSpec spec = *SpecFromJson(gguf.description().model_spec);
  return !spec.delta_net || !spec.delta_net->key_heads_in_turn;
}

// The largest difference, in standard deviations of the position's logits.
double Distance(const Logits& a, const Logits& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    double sum = 0, squares = 0, difference = 0;
    for (size_t j = 0; j < a[i].size(); ++j) {
      sum += a[i][j], squares += double{a[i][j]} * a[i][j];
      difference = std::max(difference, std::fabs(double{a[i][j]} - b[i][j]));
    }
    const auto n = static_cast<double>(a[i].size());
    largest = std::max(largest, difference / std::sqrt(squares / n - sum / n * (sum / n)));
  }
  return largest;
}

TEST_P(GgufModelTest, LogitsAreTheSame) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < 40; ++i) tokens.emplace_back((i * 37 + 11) % 259);
  std::vector<Logits> logits;
  for (const StoreReader* store : {&folder_, &gguf_}) {
    PackedModel model(*store, {.max_positions = 160});
    MemoryProvider provider(*store);
    TestSequence sequence;
    logits.push_back(model.Feed(provider, sequence, tokens, tokens.size()));
  }
  ASSERT_EQ(logits[0].size(), tokens.size());
  ASSERT_EQ(logits[1].size(), tokens.size());
  if (SumsAlike(gguf_)) {
    EXPECT_TRUE(SameBits(logits[0], logits[1]));
  } else {
    EXPECT_LT(Distance(logits[0], logits[1]), 1e-5);
  }
}

// Of a plan, by what moed-pack knows; of a store, by what the daemon knows.
ServingBudgets BudgetsOf(const std::string& checkpoint_path) {
  const auto checkpoint = Checkpoint::Open(checkpoint_path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto plan = MakePlan(*checkpoint, {{Encoding{FormatId::kBF16}}, Encoding{FormatId::kBF16}});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return FindServingBudgets(*plan, ServingOptionsOfThisMachine()).value();
}
absl::StatusOr<ServingPlan> PlanOf(const StoreReader& store, uint64_t budget) {
  const ServingOptions options = ServingOptionsOfThisMachine();
  MOED_ASSIGN_OR_RETURN(const ModelSpec spec, SpecFromJson(store.description().model_spec));
  MOED_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::FromBlob(store.description().tokenizer));
  MOED_ASSIGN_OR_RETURN(const PresetSetup preset, ChoosePreset({}, store));
  return PlanServing({.budget = budget,
                      .options = options,
                      .store = store.description(),
                      .spec = spec,
                      .tokenizer_bytes = tokenizer->memory_bytes(),
                      .preset = NeedsOfPreset(preset, store.description(), spec)});
}

TEST_P(GgufModelTest, TheBudgetsThatAreNamedAreTheStores) {
  const ServingBudgets of_folder = BudgetsOf(DataPath(FolderOf(GetParam()), "")), of_gguf = BudgetsOf(GgufOf(GetParam()));
  for (const auto& [store, budgets] : {std::pair(&folder_, &of_folder), std::pair(&gguf_, &of_gguf)}) {
    EXPECT_TRUE(PlanOf(*store, budgets->smallest.budget).ok());
    EXPECT_TRUE(absl::IsResourceExhausted(PlanOf(*store, budgets->smallest.budget - 1).status()));
    const auto comfortable = PlanOf(*store, budgets->comfortable.budget), less = PlanOf(*store, budgets->comfortable.budget - 1);
    ASSERT_TRUE(comfortable.ok() && less.ok()) << comfortable.status() << less.status();
    EXPECT_GE(comfortable->memory.cache, store->all_expert_bytes());
    EXPECT_LT(less->memory.cache, store->all_expert_bytes());
    for (const uint64_t more : {1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 30}) {
      const auto plan = PlanOf(*store, budgets->comfortable.budget + more);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_GE(plan->memory.cache, store->all_expert_bytes()) << more;
    }
  }
  // GGUF files have routers in float32. Specs that mean the same have more or fewer digits, and shares of budgets that differ a
  // little may hold a request more.
  const auto more = static_cast<double>(gguf_.description().trunk_bytes) - static_cast<double>(folder_.description().trunk_bytes);
  EXPECT_NEAR(of_gguf.smallest.budget, of_folder.smallest.budget + more, 4096);
  EXPECT_NEAR(of_gguf.comfortable.budget, of_folder.comfortable.budget + more, 4096);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GgufModelTest, testing::ValuesIn(Checkpoints()),
                         [](const auto& info) { return info.param; });

// What the converter's file says with other values of some keys, by their names without the architecture's; "" for what is read.
std::string ErrorWith(const std::string& checkpoint, const std::map<std::string, GgufValue>& changed, ModelSpec* spec = nullptr) {
  const auto model = OpenGguf(GgufOf(checkpoint));
  EXPECT_TRUE(model.ok()) << model.status();
  const GgufArchitecture& architecture = **ArchitectureOf(model->metadata);
  GgufModel other = *model;
  other.metadata = {};
  for (const auto& [key, value] : changed) other.metadata.Add(StrCat(architecture.name, ".", key), value);
  for (const auto& [key, value] : model->metadata.values()) other.metadata.Add(key, value);
  const auto read = architecture.read_spec(other);
  if (read.ok() && spec != nullptr) *spec = *read;
  return std::string(read.status().message());
}

TEST(GgufArchitecturesTest, LayersWithoutHeadsOfKeysAndValuesAreRecurrent) {
  using Counts = std::vector<int64_t>;
  constexpr const char* kHeads = "attention.head_count_kv";
  for (const auto& [checkpoint, layers, heads] :
       {std::tuple("lfm2_moe", size_t{5}, 2), std::tuple("granitemoehybrid", size_t{4}, 1)}) {
    Counts counts(layers, heads);
    counts[1] = 0;
    ModelSpec spec;
    EXPECT_EQ(ErrorWith(checkpoint, {{kHeads, counts}}, &spec), "");
    EXPECT_EQ(spec.kv_heads, heads);
    for (size_t layer = 0; layer < layers; ++layer) EXPECT_EQ(spec.recurrent[layer], layer == 1);
    counts[2] = heads + 1;
    EXPECT_THAT(ErrorWith(checkpoint, {{kHeads, counts}}), testing::HasSubstr("allowed: 0 and one other number"));
    EXPECT_THAT(ErrorWith(checkpoint, {{kHeads, Counts(layers, 0)}}), testing::HasSubstr("kv_heads = 0"));
    EXPECT_THAT(ErrorWith(checkpoint, {{kHeads, Counts(layers, heads)}}), testing::HasSubstr("some must be"));
    EXPECT_THAT(ErrorWith(checkpoint, {{kHeads, Counts(layers - 1, heads)}}), testing::HasSubstr(kHeads));
    EXPECT_THAT(ErrorWith(checkpoint, {{kHeads, Counts(layers, -1)}}), testing::HasSubstr(kHeads));
  }
}

TEST(GgufArchitecturesTest, KeysOfGraniteHybridAreRead) {
  ModelSpec spec;
  EXPECT_EQ(ErrorWith("granitemoehybrid", {{"rope.scaling.finetuned", true}}, &spec), "");
  EXPECT_FALSE(spec.unrotated);
  EXPECT_THAT(ErrorWith("granitemoehybrid", {{"ssm.inner_size", uint64_t{61}}}), testing::HasSubstr("ssm.inner_size = 61"));
  EXPECT_THAT(ErrorWith("granitemoehybrid", {{"ssm.group_count", uint64_t{4}}}), testing::HasSubstr("groups = 4"));
  EXPECT_THAT(ErrorWith("granitemoehybrid", {{"ssm.conv_kernel", uint64_t{1}}}), testing::HasSubstr("ssm.conv_kernel is 1"));
  EXPECT_THAT(ErrorWith("nemotron_h", {{"ssm.inner_size", uint64_t{61}}}), testing::HasSubstr("ssm.inner_size = 61"));
  EXPECT_THAT(ErrorWith("nemotron_h", {{"moe_latent_size", uint64_t{12}}}), testing::HasSubstr("moe_latent_size"));
  EXPECT_THAT(ErrorWith("nemotron_h", {{"feed_forward_length", uint64_t{12}}}), testing::HasSubstr("some have attention"));
  EXPECT_THAT(ErrorWith("nemotron_h", {{"feed_forward_length", uint64_t{0}}}), testing::HasSubstr("has experts"));
  EXPECT_THAT(ErrorWith("lfm2_moe", {{"shortconv.l_cache", uint64_t{1000}}}), testing::HasSubstr("shortconv.l_cache is 1000"));
}

// As config.json says it; heads that turn in part as well, and those that have a norm behind.
TEST(GgufArchitecturesTest, YarnIsRead) {
  for (const char* const checkpoint : {"qwen3_moe", "qwen3_vl_moe_experts", "glm4v_moe", "hunyuan_v1_moe", "olmoe"}) {
    std::map<std::string, GgufValue> keys = {{"rope.scaling.type", std::string("yarn")},
                                             {"rope.scaling.factor", 4.0},
                                             {"rope.scaling.original_context_length", uint64_t{40}}};
    ModelSpec spec;
    EXPECT_EQ(ErrorWith(checkpoint, keys, &spec), "");
    const YarnScaling yarn = {.factor = 4, .attention_factor = 0.1 * std::log(4.0) + 1, .original_positions = 40};
    EXPECT_EQ(spec.yarn, yarn);
    keys["rope.scaling.yarn_attn_factor"] = 1.5;
    EXPECT_EQ(ErrorWith(checkpoint, keys, &spec), "");
    EXPECT_EQ(spec.yarn->attention_factor, 1.5);
    keys["rope.scaling.type"] = std::string("longrope");
    EXPECT_THAT(ErrorWith(checkpoint, keys), testing::HasSubstr("allowed: none, yarn"));
  }
}

TEST(GgufArchitecturesTest, EveryOneHasAFileOfTheConverter) {
  std::set<std::string_view> with_file;
  for (const std::string& checkpoint : Checkpoints()) {
    const auto model = OpenGguf(GgufOf(checkpoint));
    ASSERT_TRUE(model.ok()) << model.status();
    const auto architecture = ArchitectureOf(model->metadata);
    ASSERT_TRUE(architecture.ok()) << architecture.status();
    with_file.insert((*architecture)->name);
  }
  for (const GgufArchitecture& architecture : GgufArchitectures()) EXPECT_TRUE(with_file.contains(architecture.name));
}

}  // namespace
}  // namespace moed
