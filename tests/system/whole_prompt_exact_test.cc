// Exact mode of models whose prompt is computed whole, and whose experts have room for a part of it alone: the same bits whatever
// the preset, the policy, the predictor, the capacity and who else is served.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/engine/step_engine.h"
#include "core/expert/policies/table.h"
#include "core/expert/predictors/table.h"
#include "core/expert/presets/preset.h"
#include "tests/engine/observed_answer.h"
#include "tests/paths.h"
#include "tests/system/demo_rig.h"
#include "tests/temporary_folder.h"

namespace moed::testing {
namespace {

constexpr int kNewTokens = 6;
constexpr int kSourceTokens = 29;

struct Checkpoint {
  const char* name;
  int start = -1;      // that a decoder begins with behind its source
  int separator = -1;  // behind a prefix
};
constexpr Checkpoint kCheckpoints[] = {{.name = "switch_transformers", .start = 0},
                                       {.name = "gptsan_japanese", .separator = 274}};

const TemporaryFolder& Folder() {
  static const TemporaryFolder folder;
  return folder;
}

const std::string& StorePath(const Checkpoint& checkpoint) {
  static std::map<std::string, std::string> paths;
  std::string& path = paths[checkpoint.name];
  if (!path.empty()) return path;
  path = Folder() / StrCat(checkpoint.name, ".moed");
  const std::string command = StrCat(BuiltProgram("moed-pack"), " ", UnpackedCheckpoint(checkpoint.name), " ", path,
                                     " --expert-formats q8,q2 --trunk-format q8 >/dev/null 2>&1");
  MOED_CHECK(std::system(command.c_str()) == 0);
  return path;
}

// Of one length, beside the token that the decoder begins with.
std::vector<TokenId> Prompt(const Checkpoint& checkpoint, int seed) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < kSourceTokens; ++i) prompt.emplace_back(3 + (i * i * 7 + i * 31 + seed * 53) % 250);
  if (checkpoint.separator >= 0) prompt[kSourceTokens / 2] = TokenId(checkpoint.separator);
  if (checkpoint.start >= 0) prompt.emplace_back(checkpoint.start);
  return prompt;
}

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logits;
};

Answer AnswerOf(Rig& rig, const Checkpoint& checkpoint, int seed) {
  Answer answer;
  answer.tokens = rig.Greedy(Prompt(checkpoint, seed), kNewTokens, kSourceTokens, &answer.logits);
  return answer;
}

const Answer& Definition(const Checkpoint& checkpoint, int seed) {
  static std::map<std::string, std::vector<Answer>> all;
  std::vector<Answer>& answers = all[checkpoint.name];
  if (answers.empty()) {
    Rig rig({.store = StorePath(checkpoint), .compute = "scalar", .slots = 64});
    answers = {AnswerOf(rig, checkpoint, 0), AnswerOf(rig, checkpoint, 1)};
  }
  return answers[static_cast<size_t>(seed)];
}

void ExpectSameBits(const Checkpoint& checkpoint, const RigOptions& options, const std::string& what) {
  Rig rig(options);
  for (const int seed : {0, 1}) {
    const Answer answer = AnswerOf(rig, checkpoint, seed);
    const Answer& expected = Definition(checkpoint, seed);
    EXPECT_EQ(answer.tokens, expected.tokens) << what;
    ASSERT_EQ(answer.logits.size(), expected.logits.size()) << what;
    EXPECT_EQ(std::memcmp(answer.logits.data(), expected.logits.data(), expected.logits.size() * sizeof(float)), 0) << what;
  }
  EXPECT_EQ(rig.last_counters().gate_mass_lost, 0) << what;
}

// A file for the presets that want one; `member`: what it says of layers and experts.
std::string WriteFile(const Checkpoint& checkpoint, const std::string& name,
                      const std::function<std::string(int layers, int experts)>& member) {
  const auto store = StoreReader::Open(StorePath(checkpoint));
  MOED_CHECK(store.ok());
  const StoreDescription& description = (*store)->description();
  const std::string path = Folder() / StrCat(checkpoint.name, "-", name, ".json");
  std::FILE* file = std::fopen(path.c_str(), "w");
  std::fprintf(file, "{\"model_hash\":\"%016llx\",%s}", static_cast<unsigned long long>((*store)->model_hash()),
               member(static_cast<int>(description.moe_layers.size()), description.experts_per_layer).c_str());
  std::fclose(file);
  return path;
}

std::string Repeated(int count, const std::function<std::string(int)>& item) {
  std::string list;
  for (int i = 0; i < count; ++i) list += StrCat(i == 0 ? "" : ",", item(i));
  return "[" + list + "]";
}

RigOptions OptionsOf(const Checkpoint& checkpoint, const PresetRow& preset) {
  RigOptions options = {.store = StorePath(checkpoint)};
  options.preset = preset.name;
  options.slots = preset.cache == CacheKind::kOneToken ? 4 : preset.cache == CacheKind::kAll ? 64 : 12;
  if (preset.rule == "widths") {
    options.preset_options = "widths=" + WriteFile(checkpoint, "widths", [](int layers, int experts) {
                               return "\"precisions\":" + Repeated(layers, [=](int) {
                                        return Repeated(experts, [](int e) { return StrCat(e % 2); });
                                      });
                             });
  }
  if (preset.mask == "swapmoe") {
    options.preset_options =
        "slots=" + WriteFile(checkpoint, "slots", [](int layers, int experts) {
          return StrCat("\"slots\":", Repeated(layers, [](int) { return "2"; }), ",\"norms\":", Repeated(layers, [=](int) {
                          return Repeated(experts, [](int e) { return StrCat(e + 1); });
                        }));
        });
  }
  return options;
}

class WholePromptExactMode : public ::testing::TestWithParam<Checkpoint> {};

TEST_P(WholePromptExactMode, EveryPreset) {
  for (const PresetRow& preset : Presets()) {
    ExpectSameBits(GetParam(), OptionsOf(GetParam(), preset), StrCat("preset ", preset.name));
  }
}

TEST_P(WholePromptExactMode, EveryPolicyPredictorAndCapacity) {
  const auto expect = [](std::string_view policy, std::string_view predictor) {
    for (const int slots : {1, 3, 64}) {
      for (const int own_step_tokens : {0, 2}) {
        RigOptions options = {.store = StorePath(GetParam()), .policy = std::string(policy), .predictor = std::string(predictor)};
        options.slots = slots;
        options.own_step_tokens = own_step_tokens;
        ExpectSameBits(GetParam(), options, StrCat(policy, " x ", predictor, " x ", slots, " slots, own ", own_step_tokens));
      }
    }
  };
  for (const PolicyRow& policy : Policies()) {
    if (policy.mask.empty()) expect(policy.name, "learned");
  }
  for (const PredictorRow& predictor : Predictors()) {
    if (predictor.mask.empty()) expect("lru", predictor.name);
  }
}

TEST_P(WholePromptExactMode, AnExactRequestBesideAFastOneUnderEveryPreset) {
  for (const PresetRow& preset : Presets()) {
    RigOptions options = OptionsOf(GetParam(), preset);
    options.max_step_tokens = 2 * kSourceTokens;
    Rig rig(options);
    const auto answers = rig.GreedyTogether({Prompt(GetParam(), 0), Prompt(GetParam(), 1)}, kNewTokens, kSourceTokens,
                                            {Fidelity::Fast(), Fidelity::Exact()});
    EXPECT_EQ(answers[1], Definition(GetParam(), 1).tokens) << preset.name;
    EXPECT_EQ(answers[0].size(), static_cast<size_t>(kNewTokens)) << preset.name;
  }
}

// The source of two pages, answered twice: as far as it may be shared the second answer begins with what the first one left.
void ExpectSharedBits(RigOptions options, bool prefix_cache, std::vector<TokenInfo>& expected, const std::string& what) {
  constexpr int kTokens = 70, kContext = 96;
  options.max_step_tokens = kTokens;
  options.max_context = kContext;
  options.kv_pages = 5;
  const auto tokenizer = *Tokenizer::FromBlob((*StoreReader::Open(options.store))->TakeTokenizer());
  const FakeClock clock;
  Rig rig(options);
  const auto engine = *StepEngine::Create({.max_context = kContext,
                                           .max_new_tokens = kNewTokens,
                                           .max_running = 1,
                                           .max_step_tokens = kTokens,
                                           .prefix_cache = prefix_cache},
                                          {rig.model(), rig.provider(), rig.kv(), *tokenizer, clock});
  std::vector<TokenId> source;
  for (int i = 0; i < kTokens; ++i) source.emplace_back(3 + (i * i * 7 + i * 31) % 250);
  for (const int number : {0, 1}) {
    ObservedAnswer answer;
    const std::shared_ptr<ObservedAnswer> observer(&answer, [](auto*) {});
    ASSERT_TRUE(engine->Submit(RequestOf(source, "", kNewTokens, number), observer).ok());
    while (engine->RunOneStep()) {
    }
    EXPECT_EQ(answer.cached_tokens, number == 1 && prefix_cache ? kTokens : 0) << what;
    if (expected.empty()) expected = answer.tokens;
    moed::ExpectSameBits(answer.tokens, expected, what);
  }
}

TEST(SharedSourceExactMode, EveryPresetPolicyAndCapacity) {
  const Checkpoint& checkpoint = kCheckpoints[0];
  std::vector<TokenInfo> expected;
  RigOptions options = {.store = StorePath(checkpoint), .compute = "scalar", .slots = 64};
  ExpectSharedBits(options, /*prefix_cache=*/false, expected, "the definition");
  options.compute = "auto";
  for (const PresetRow& preset : Presets()) {
    ExpectSharedBits(OptionsOf(checkpoint, preset), true, expected, StrCat("preset ", preset.name));
  }
  for (const PolicyRow& policy : Policies()) {
    options.policy = policy.name;
    options.predictor = "learned";
    for (const int slots : {1, 3, 64}) {
      options.slots = slots;
      if (policy.mask.empty()) ExpectSharedBits(options, true, expected, StrCat(policy.name, " x ", slots, " slots"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, WholePromptExactMode, ::testing::ValuesIn(kCheckpoints),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace moed::testing
