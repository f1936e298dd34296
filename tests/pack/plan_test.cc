#include "tools/pack/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/model/family.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tests/paths.h"
#include "tools/pack/budgets.h"

namespace moed {
namespace plan_test {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const PackEncodings kFormats{{Encoding{FormatId::kQ8}, Encoding{FormatId::kQ4}}, Encoding{FormatId::kQ8}};

// Keeps the checkpoint that the plan points into.
struct Planned {
  TemporaryFolder folder;
  absl::StatusOr<Checkpoint> checkpoint;
  absl::StatusOr<PackPlan> plan;

  explicit Planned(const TinyCheckpoint& tiny) : checkpoint(absl::UnknownError("")), plan(absl::UnknownError("")) {
    tiny.Write(folder / "in");
    checkpoint = Checkpoint::Open(folder / "in");
    if (checkpoint.ok()) plan = MakePlan(*checkpoint, kFormats);
  }
  std::string error() const { return std::string((checkpoint.ok() ? plan.status() : checkpoint.status()).message()); }
};

TEST(PlanTest, EveryFamilyHasItsTensorsInTheStore) {
  for (const Family& family : Families()) {
    const Planned planned(MakeTinyCheckpoint(family.model_type));
    ASSERT_TRUE(planned.plan.ok()) << planned.error();
    const PackPlan& plan = *planned.plan;
    const StoreDescription& description = plan.description;
    EXPECT_EQ(plan.spec.family, family.model_type);
    EXPECT_EQ(description.precisions.size(), 2u);
    EXPECT_EQ(description.experts_per_layer, 5);
    EXPECT_EQ(description.moe_layers, plan.spec.MoeLayers());
    EXPECT_EQ(plan.experts.size(), description.moe_layers.size() * 5 * plan.parts.size());
    ASSERT_EQ(plan.trunk.size(), description.trunk.size());
    std::set sources(plan.trunk.begin(), plan.trunk.end());  // one may be there twice
    sources.erase(nullptr);                                  // two are computed
    EXPECT_EQ(sources.size() + plan.experts.size(), planned.checkpoint->tensor_count());
    const TensorInfo& frequencies = description.trunk[description.trunk.size() - 2];
    EXPECT_EQ(frequencies.name, "rope.inv_freq");
    EXPECT_EQ(frequencies.cols, plan.spec.FirstFrequency(plan.spec.rotation_count()));
    EXPECT_EQ(description.trunk.back().name, "expert_norms");
    EXPECT_EQ(static_cast<size_t>(description.trunk.back().cols), description.moe_layers.size() * 5);
    EXPECT_EQ(plan.trunk.back(), nullptr);
    EXPECT_TRUE(SpecFromJson(description.model_spec).ok());
  }
}

// transformers writes the embedding up to three times.
TEST(PlanTest, EncoderAndDecoderHaveOneEmbedding) {
  TinyCheckpoint tiny = MakeTinyCheckpoint("switch_transformers");
  const size_t tensors = Planned(tiny).plan->trunk.size();
  for (const char* copy : {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}) {
    tiny.tensors[copy] = tiny.tensors["shared.weight"];
    const Planned planned(tiny);
    ASSERT_TRUE(planned.plan.ok()) << planned.error();
    EXPECT_EQ(planned.plan->trunk.size(), tensors);
  }
  tiny.tensors["decoder.embed_tokens.weight"] = tiny.tensors["lm_head.weight"];
  EXPECT_THAT(Planned(tiny).error(),
              AllOf(HasSubstr("\"decoder.embed_tokens.weight\" differs from \"shared.weight\""), HasSubstr("one embedding")));
}

TEST(PlanTest, LayersThatPredictFurtherTokensAreLeftOut) {
  for (const auto& [family, name] :
       {std::pair("glm4_moe", "model.layers.3.eh_proj.weight"), std::pair("ernie4_5_moe", "model.mtp_emb_norm.0.weight"),
        std::pair("mellum", "mtp.layers.0.input_layernorm.weight"),
        std::pair("exaone_moe", "mtp.layers.0.input_layernorm.weight")}) {
    TinyCheckpoint tiny = MakeTinyCheckpoint(family);
    tiny.tensors[name] = tiny.tensors["model.norm.weight"];
    EXPECT_TRUE(Planned(tiny).plan.ok()) << Planned(tiny).error();
    tiny.tensors["model.layers.2.eh_proj.weight"] = tiny.tensors["model.norm.weight"];
    EXPECT_FALSE(Planned(tiny).plan.ok()) << family;
  }
}

TEST(PlanTest, WhatSeesPicturesIsLeftOut) {
  for (const auto& [family, name] : {std::pair("qwen3_5_moe_text", "model.visual.patch_embed.proj.weight"),
                                     std::pair("ernie4_5_moe_vl", "vision_model.blocks.0.norm1.weight"),
                                     std::pair("ernie4_5_moe_vl", "model.resampler_model.after_norm.weight"),
                                     std::pair("ernie4_5_moe_vl", "model.layers.1.mlp.experts.9.up_proj.weight"),
                                     std::pair("gemma4_text", "model.vision_tower.patch_embedder.input_proj.weight"),
                                     std::pair("gemma4_text", "model.embed_vision.embedding_projection.weight")}) {
    TinyCheckpoint tiny = MakeTinyCheckpoint(family);
    tiny.tensors[name] = tiny.tensors["model.norm.weight"];
    EXPECT_TRUE(Planned(tiny).plan.ok()) << Planned(tiny).error();
  }
}

TEST(PlanTest, RoutersKeepTheNumbersOfTheCheckpoint) {
  const std::pair<std::string, FormatId> cases[] = {{"BF16", FormatId::kBF16}, {"F16", FormatId::kF16}, {"F32", FormatId::kF32}};
  for (const auto& [dtype, format] : cases) {
    const Planned planned(FillTinyCheckpoint(TinyConfig("qwen2_moe"), dtype));
    ASSERT_TRUE(planned.plan.ok()) << planned.error();
    int routers = 0;
    for (const TensorInfo& tensor : planned.plan->description.trunk) {
      const bool router = tensor.name.ends_with(".router") || tensor.name.ends_with(".shared_gate");
      EXPECT_EQ(tensor.format, router ? format : tensor.vector ? FormatId::kF32 : FormatId::kQ8) << tensor.name;
      routers += router;
    }
    EXPECT_EQ(routers, 4);  // of 3 layers, one has no experts
  }
}

TEST(PlanTest, TiedEmbeddingsAreStoredOnce) {
  json config = TinyConfig("mixtral");
  config["tie_word_embeddings"] = true;
  TinyCheckpoint tiny = FillTinyCheckpoint(config);
  ASSERT_EQ(tiny.tensors.count("lm_head.weight"), 0u);
  const auto has_head = [](const Planned& planned) {
    for (const TensorInfo& tensor : planned.plan->description.trunk) {
      if (tensor.name == "head") return true;
    }
    return false;
  };
  const Planned without(tiny);
  ASSERT_TRUE(without.plan.ok()) << without.error();
  EXPECT_FALSE(has_head(without));

  tiny.tensors["lm_head.weight"] = tiny.tensors["model.embed_tokens.weight"];
  const Planned same(tiny);
  ASSERT_TRUE(same.plan.ok()) << same.error();
  EXPECT_FALSE(has_head(same));

  tiny.tensors["lm_head.weight"].bytes.back() ^= 1;
  EXPECT_THAT(Planned(tiny).error(), AllOf(HasSubstr("\"lm_head.weight\" differs"), HasSubstr("tie_word_embeddings")));

  const Planned untied(MakeTinyCheckpoint("mixtral"));
  ASSERT_TRUE(untied.plan.ok()) << untied.error();
  EXPECT_TRUE(has_head(untied));
}

TEST(PlanTest, NamesTheTensorThatIsWrong) {
  const std::string expert = "model.layers.2.block_sparse_moe.experts.4.w2.weight";
  const struct {
    std::function<void(TestTensors&)> damage;
    std::vector<std::string> expected;
  } cases[] = {
      {[&](TestTensors& t) { t.erase(expert); }, {"\"" + expert + "\"", "(40, 36)", "is missing"}},
      {[](TestTensors& t) { t.erase("model.norm.weight"); }, {"\"model.norm.weight\" of shape (40) is missing"}},
      {[&](TestTensors& t) {
         t[expert] = RandomTensor("BF16", {36, 40}, 1);
       },
       {"model.safetensors", "\"" + expert + "\" has shape (36, 40), expected (40, 36)"}},
      {[](TestTensors& t) {
         t["model.norm.weight"] = RandomTensor("BF16", {1, 40}, 1);
       },
       {"has shape (1, 40), expected (40)"}},
      {[](TestTensors& t) { t["model.layers.0.self_attn.q_proj.bias"] = RandomTensor("BF16", {40}, 1); },
       {"model.safetensors", "unknown tensor \"model.layers.0.self_attn.q_proj.bias\" of shape (40)", "mixtral"}},
      {[](TestTensors& t) { t["x.1"] = t["x.2"] = RandomTensor("F32", {1}, 1); }, {"unknown tensor \"x.1\"", "1 more unknown"}},
  };
  const TinyCheckpoint good = MakeTinyCheckpoint("mixtral");
  for (const auto& [damage, expected] : cases) {
    TinyCheckpoint tiny = good;
    damage(tiny.tensors);
    const Planned planned(tiny);
    EXPECT_FALSE(planned.plan.ok());
    for (const std::string& text : expected) EXPECT_THAT(planned.error(), HasSubstr(text));
  }
}

// A key that changes what the model computes is never passed over.
TEST(PlanTest, RefusesWhatIsNotImplemented) {
  const struct {
    std::string key;
    json value;
  } cases[] = {
      {"sliding_window", 4096},
      {"clip_qkv", 8.0},
      {"hidden_act", "gelu"},
      {"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}},
      {"rope_scaling", {{"rope_type", "linear"}}},
      {"rope_parameters", {{"rope_type", "llama3"}, {"rope_theta", 10000.0}}},
      {"attention_bias", true},
      {"quantization_config", {{"quant_method", "awq"}}},
      {"some_new_key", 1},
  };
  const TinyCheckpoint good = MakeTinyCheckpoint("olmoe");
  for (const auto& [key, value] : cases) {
    TinyCheckpoint tiny = good;
    tiny.config[key] = value;
    const Planned planned(tiny);
    EXPECT_FALSE(planned.plan.ok()) << key;
    EXPECT_THAT(planned.error(), AllOf(HasSubstr("config.json"), HasSubstr(key)));
  }
}

// A checkpoint that sees pictures: the text part's tensors have longer names, its keys stand in an object.
TEST(PlanTest, TheTextPartOfAWholeCheckpointIsTheSameModel) {
  const TinyCheckpoint text = MakeTinyCheckpoint("qwen3_5_moe_text");
  const Planned expected(text);
  ASSERT_TRUE(expected.plan.ok()) << expected.error();
  TinyCheckpoint whole = text;
  whole.tensors.clear();
  for (const auto& [name, tensor] : text.tensors) {
    whole.tensors[name.starts_with("model.") ? "model.language_model." + name.substr(6) : name] = tensor;
  }
  whole.tensors["model.visual.patch_embed.proj.bias"] = whole.tensors["mtp.norm.weight"] = text.tensors.at("model.norm.weight");
  whole.config = {{"model_type", "qwen3_5_moe"},
                  {"image_token_id", 7},
                  {"tie_word_embeddings", false},
                  {"text_config", text.config},
                  {"vision_config", {{"depth", 3}, {"model_type", "qwen3_5_moe"}}}};
  json& own = whole.config["text_config"];
  own.erase("rope_theta");
  own["mamba_ssm_dtype"] = "float32";
  own["rope_parameters"] = {
      {"rope_theta", 10000.0}, {"rope_type", "default"}, {"mrope_interleaved", true}, {"mrope_section", {1, 0}}};
  const Planned planned(whole);
  ASSERT_TRUE(planned.plan.ok()) << planned.error();
  EXPECT_EQ(planned.plan->description.model_spec, expected.plan->description.model_spec);
  ASSERT_EQ(planned.plan->trunk.size(), expected.plan->trunk.size());

  whole.tensors["model.language_model.visual"] = text.tensors.at("model.norm.weight");
  EXPECT_THAT(Planned(whole).error(), HasSubstr("unknown tensor"));
  whole.tensors.erase("model.language_model.visual");
  own["attn_output_gate"] = false;
  EXPECT_THAT(Planned(whole).error(), AllOf(HasSubstr("text_config"), HasSubstr("attn_output_gate")));
  EXPECT_EQ(*FamilyNamed("qwen3_5_moe"), *FamilyNamed("qwen3_5_moe_text"));
  EXPECT_THAT(std::string(FamilyNamed("qwen3").status().message()), HasSubstr("qwen3_5_moe_text, qwen3_5_moe"));
  whole.config.erase("text_config");
  EXPECT_THAT(Planned(whole).error(), AllOf(HasSubstr("text_config"), HasSubstr("missing")));
}

// Each with the names of its whole checkpoint.
TEST(PlanTest, TextPartsOfWholeCheckpointsHaveNamesOfTheirOwn) {
  const struct {
    std::string text, whole, prefix, head, other;
  } cases[] = {
      {"qwen3_vl_moe_text", "qwen3_vl_moe", "model.language_model.", "lm_head.", "model.visual.pos_embed.weight"},
      {"glm4v_moe_text", "glm4v_moe", "model.language_model.", "lm_head.", "model.visual.merger.proj.weight"},
      {"qwen3_omni_moe_text", "qwen3_omni_moe", "thinker.model.", "thinker.lm_head.", "talker.model.norm.weight"},
      {"kimi_k2", "kimi_k25", "language_model.model.", "language_model.lm_head.", "mm_projector.proj.0.weight"},
      {"kimi_k2", "kimi_k25", "model.language_model.", "lm_head.", "model.vision_tower.norm.weight"},
      {"cohere2_moe", "cohere2_vision", "model.language_model.", "", "model.vision_tower.norm.weight"},
  };
  for (const auto& [text_type, whole_type, prefix, head, other] : cases) {
    const TinyCheckpoint text = MakeTinyCheckpoint(text_type);
    const Planned expected(text);
    ASSERT_TRUE(expected.plan.ok()) << expected.error();
    TinyCheckpoint whole = text;
    whole.tensors.clear();
    for (const auto& [name, tensor] : text.tensors) {
      const bool of_head = name.starts_with("lm_head.");
      whole.tensors[of_head ? head + name.substr(8) : prefix + name.substr(6)] = tensor;
    }
    whole.tensors[other] = text.tensors.at("model.norm.weight");
    json part = {{"text_config", text.config}, {"vision_config", {{"depth", 3}}}};
    part["tie_word_embeddings"] = text.config.at("tie_word_embeddings");
    if (whole_type == "qwen3_omni_moe") part = {{"thinker_config", part}, {"talker_config", {{"depth", 3}}}};
    part["model_type"] = whole_type;
    whole.config = part;
    const Planned planned(whole);
    ASSERT_TRUE(planned.plan.ok()) << planned.error();
    EXPECT_EQ(planned.plan->description.model_spec, expected.plan->description.model_spec);
    EXPECT_EQ(planned.plan->trunk.size(), expected.plan->trunk.size());
    whole.tensors["model.sight"] = text.tensors.at("model.norm.weight");
    EXPECT_THAT(Planned(whole).error(), HasSubstr("unknown tensor"));
  }
}

TEST(PlanTest, RefusesUnknownArchitectures) {
  TinyCheckpoint tiny = MakeTinyCheckpoint("mixtral");
  tiny.config["model_type"] = "llama";
  std::vector<std::string> parts = {"\"llama\""};
  const Planned planned(tiny);
  EXPECT_THAT(planned.error(), HasSubstr("llama"));
  for (const Family& family : Families()) EXPECT_THAT(planned.error(), HasSubstr(std::string(family.model_type)));
}

TEST(PlanTest, BothSpellingsOfTransformersMeanTheSame) {
  for (const Family& family : Families()) {
    if (family.model_type == "switch_transformers" || family.model_type == "gptsan-japanese") continue;  // no head turns
    TinyCheckpoint tiny = MakeTinyCheckpoint(family.model_type);
    const Planned old_spelling(tiny);
    ASSERT_TRUE(old_spelling.plan.ok()) << old_spelling.error();
    const bool by_layer_type = tiny.config["rope_theta"].is_null();
    tiny.config.erase("torch_dtype");
    tiny.config.erase("rope_theta");
    tiny.config["dtype"] = "bfloat16";
    json one = {{"rope_type", "default"}};
    if (tiny.config.value("rope_scaling", json()).is_object()) one = tiny.config["rope_scaling"];
    tiny.config.erase("rope_scaling");
    one["rope_theta"] = 10000.0;
    json full = {{"rope_theta", 500000.0}, {"rope_type", "default"}};  // Mellum's; each as transformers has it where it is absent
    if (family.model_type == "gemma4_text") {
      full = {{"rope_theta", 1000000.0}, {"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}};
    }
    if (family.model_type == "laguna") full["partial_rotary_factor"] = 0.5;
    tiny.config["rope_parameters"] = by_layer_type ? json{{"full_attention", full}, {"sliding_attention", one}} : one;
    const Planned new_spelling(tiny);
    ASSERT_TRUE(new_spelling.plan.ok()) << new_spelling.error();
    EXPECT_EQ(old_spelling.plan->description.model_spec, new_spelling.plan->description.model_spec);
  }
}

TEST(PlanTest, EndTokensOfBothFilesAreKept) {
  TinyCheckpoint tiny = MakeTinyCheckpoint("mixtral");
  tiny.generation_config = {{"eos_token_id", {7, 3}}, {"temperature", 0.6}};
  const Planned planned(tiny);
  ASSERT_TRUE(planned.plan.ok()) << planned.error();
  EXPECT_THAT(planned.plan->spec.eos, ::testing::ElementsAre(TokenId(0), TokenId(3), TokenId(7)));
}

TEST(PlanTest, RefusesATokenizerThatDoesNotFit) {
  json config = TinyConfig("mixtral");
  config["vocab_size"] = 4000;  // the tokenizer has 4096 pieces
  EXPECT_THAT(Planned(FillTinyCheckpoint(config)).error(), AllOf(HasSubstr("up to 4095"), HasSubstr("vocab_size = 4000")));
  TinyCheckpoint tiny = MakeTinyCheckpoint("mixtral");
  tiny.tokenizer = "{}";
  EXPECT_FALSE(Planned(tiny).plan.ok());
}

// Values of torch: 1.0 / theta ** (arange(0, dim, 2) / dim) in float32.
TEST(PlanTest, InverseFrequenciesAreThoseOfTheReference) {
  const std::vector<float> d10 = {0x1p+0, 0x1.28dea6p-4, 0x1.5843a6p-8, 0x1.8f399cp-12, 0x1.cef5dcp-16};
  EXPECT_EQ(InverseFrequencies(500000.0, 10), d10);
  const std::vector<float> d32 = {0x1p+0,        0x1.1feb34p-1, 0x1.43d136p-2, 0x1.6c310ep-3, 0x1.99999ap-4,
                                  0x1.ccab84p-5, 0x1.030dc6p-5, 0x1.235a72p-6, 0x1.47ae14p-7};
  std::vector<float> found = InverseFrequencies(10000.0, 32);
  ASSERT_EQ(found.size(), 16u);
  EXPECT_EQ(found.back(), 0x1.74eea6p-13f);
  found.resize(d32.size());
  EXPECT_EQ(found, d32);
  EXPECT_EQ(InverseFrequencies(1000000.0, 128).back(), 0x1.4d1c98p-20f);
}

TEST(PlanTest, RotationsFollowEachOther) {
  ModelSpec spec;
  spec.head_dim = 10;
  spec.rope_theta = 500000;
  EXPECT_EQ(InverseFrequencies(spec), InverseFrequencies(500000.0, 10));
  const YarnScaling yarn = {.factor = 4, .original_positions = 40};
  spec.more_rotations = {{10000, yarn}};
  const std::vector<float> both = InverseFrequencies(spec), second = InverseFrequencies(10000, 10, yarn);
  ASSERT_EQ(both.size(), 10u);
  EXPECT_TRUE(std::equal(second.begin(), second.end(), both.begin() + 5));
}

// The division is by float32 products, as in transformers' LongRoPE.
TEST(PlanTest, DividedFrequenciesAreThoseOfTheReference) {
  const std::vector<float> found = InverseFrequencies(10000.0, 10, FrequencyDivisors{{1.1, 2.5, 7.0, 19.0, 34.5}});
  EXPECT_EQ(found, (std::vector<float>{0x1.d1745cp-1f, 0x1.03ab3cp-4f, 0x1.d65708p-9f, 0x1.b76a94p-13f, 0x1.32d502p-16f}));
  EXPECT_EQ(InverseFrequencies(10000.0, 10, FrequencyDivisors{std::vector<double>(5, 1.0)}), InverseFrequencies(10000.0, 10));
}

// The short ones, unless longer ones are asked for.
TEST(PlanTest, BudgetsAreForTheContextThatIsUsual) {
  const auto checkpoint = Checkpoint::Open(UnpackedCheckpoint("phimoe_longrope"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto plan = MakePlan(*checkpoint, kFormats);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ServingOptions options = ServingOptionsOfThisMachine();
  const auto context = [&] { return FindServingBudgets(*plan, options)->comfortable.max_context; };
  EXPECT_EQ(context(), plan->spec.short_context);
  options.max_context = plan->spec.max_positions;
  EXPECT_EQ(context(), plan->spec.max_positions);
  options.max_context = plan->spec.max_positions + 1;
  EXPECT_THAT(std::string(FindServingBudgets(*plan, options).status().message()), HasSubstr("161"));
}

// As transformers' "proportional": so many pairs turn by the frequencies of the whole head.
TEST(PlanTest, KindsOfLayersHaveFrequenciesOfTheirOwn) {
  ModelSpec spec;
  spec.head_dim = 14;
  spec.rope_theta = 1e6;
  spec.rotated_pairs = 2;
  spec.more_rotations = {{10000, {}}};
  spec.more_heads = {{.kv_heads = 1, .head_dim = 8}};
  std::vector<float> expected = InverseFrequencies(1e6, 14);
  std::fill(expected.begin() + 2, expected.end(), 0.0f);
  const std::vector<float> second = InverseFrequencies(10000, 8);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(InverseFrequencies(spec), expected);
  EXPECT_EQ(spec.FirstFrequency(spec.rotation_count()), 7 + 4);
}

// Values of transformers for gpt-oss's numbers: frequencies that stay, mixtures, and frequencies divided by the factor.
TEST(PlanTest, YarnScalesFrequenciesAsTheReference) {
  const YarnScaling exact = {.factor = 32, .original_positions = 4096, .truncate = false};
  YarnScaling whole = exact;
  whole.truncate = true;
  const size_t at[] = {0, 7, 8, 9, 12, 16, 17, 18, 31};
  const std::pair<YarnScaling, std::vector<double>> cases[] = {
      {exact,
       {1.0, 7.374456525e-02, 5.081327260e-02, 3.170569614e-02, 6.794959307e-03, 4.564839182e-04, 1.293186942e-04,
        3.830881178e-05, 3.023511397e-07}},
      {whole,
       {1.0, 7.374456525e-02, 5.081327260e-02, 3.162075207e-02, 7.015713956e-03, 5.809474969e-04, 2.279478358e-04,
        3.830881178e-05, 3.023511397e-07}}};
  for (const auto& [yarn, expected] : cases) {
    const std::vector<float> found = InverseFrequencies(150000.0, 64, yarn);
    ASSERT_EQ(found.size(), 32u);
    for (size_t i = 0; i < std::size(at); ++i) EXPECT_NEAR(found[at[i]], expected[i], 2e-6 * expected[i]) << at[i];
  }
}

}  // namespace plan_test
}  // namespace moed
