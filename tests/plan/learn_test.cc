#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/base/status.h"
#include "core/expert/learning/learned_state.h"
#include "core/expert/policies/table.h"
#include "core/expert/predictors/table.h"
#include "core/store/store.h"
#include "tests/plan/plan_rig.h"
#include "tools/plan/learn_planner.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Writes down what it is told.
class Listener final : public EvictionPolicy {
 public:
  explicit Listener(std::string& log) : log_(log) {}
  void OnToken(SequenceId, TokenId token) override { log_ += StrCat("token ", token.value(), ": "); }
  void Learn(const LayerRouting& routing) override {
    log_ += StrCat("layer ", routing.layer.value(), routing.tokens[0].phase == Phase::kDecode ? "" : " of a source");
    for (const TokenRouting& token : routing.tokens) {
      log_ += token.choices.empty() ? " nobody" : StrCat(" expert ", token.choices[0].expert);
    }
    log_ += "; ";
  }
  void OnAccess(CachedKey, const AccessContext&) override {}
  void OnInsert(CachedKey, uint64_t) override {}
  void OnEvict(CachedKey) override {}
  std::optional<CachedKey> Victim(const Incoming&, absl::FunctionRef<bool(CachedKey)>) override { return std::nullopt; }

 private:
  std::string& log_;
};

class WindowRoutingTest : public ::testing::Test {
 protected:
  // The tokens from `first` on; one that chose nobody has -1.
  static void Route(WindowRouting& routing, int layer, int first, const std::vector<int32_t>& experts) {
    std::vector<ExpertChoice> choices;
    for (const int32_t expert : experts) choices.push_back({expert, .5f});
    std::vector<TokenRouting> tokens;
    for (size_t i = 0; i < experts.size(); ++i) {
      const auto chosen = std::span(choices).subspan(i, experts[i] < 0 ? 0 : 1);
      tokens.push_back({SequenceId(1), TokenId(first + static_cast<int>(i)), Phase::kPrefill, chosen});
    }
    struct NothingResident final : ResidencyView {
      bool Resident(CachedKey) const override { return false; }
      bool Loading(CachedKey) const override { return false; }
    } residents;
    const LayerRouting layer_routing{LayerId(layer), tokens};
    routing.Resolve({layer_routing, {}, {}, Phase::kPrefill, residents, {}}, {});
  }
  static std::string Taught(WindowRouting& routing) {
    std::string log;
    Listener policy(log);
    const auto predictor = MakePredictor("none", {}).value();
    routing.Teach(SequenceId(1), policy, *predictor);
    return log;
  }
};

// Routed layer by layer, taught token by token.
TEST_F(WindowRoutingTest, TeachesTokenByToken) {
  WindowRouting routing(/*encoder_layers=*/0);
  Route(routing, 1, 8, {1, 5});
  Route(routing, 3, 8, {3, 7});
  EXPECT_EQ(Taught(routing), "token 8: layer 1 expert 1; layer 3 expert 3; token 9: layer 1 expert 5; layer 3 expert 7; ");
  EXPECT_EQ(Taught(routing), "");
}

TEST_F(WindowRoutingTest, TeachesAnEncodersLayersWholeAndThenTheAnswer) {
  WindowRouting routing(/*encoder_layers=*/2);
  Route(routing, 0, 20, {1, -1, 2});
  Route(routing, 1, 20, {3, 4, 5});
  Route(routing, 2, 8, {6, 7});
  EXPECT_EQ(Taught(routing),
            "layer 0 of a source expert 1 nobody expert 2; layer 1 of a source expert 3 expert 4 expert 5; "
            "token 8: layer 2 expert 6; token 9: layer 2 expert 7; ");
}

class LearnCommand : public PlanRig {
 protected:
  LearnCommand() : PlanRig(".learned") {}
};

TEST_F(LearnCommand, WritesWhatADaemonOfAutoTakesUp) {
  Prepare(MakeTinyCheckpoint("olmoe"), "q8");
  const CommandResult made = RunProgram("moed-plan", Plan("learn", {}));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("tokens"), HasSubstr("--learned-state")));
  const auto reader = StoreReader::Open(store_);
  ASSERT_TRUE(reader.ok());
  const StoreDescription& store = (*reader)->description();
  ExpertModelShape shape{.moe_layers = store.moe_layers, .experts_per_layer = store.experts_per_layer, .top_k = 2};
  const auto policy = MakePolicy("learned", {shape}).value();
  const auto predictor = MakePredictor("learned", {.model = shape}).value();
  const LearnedFile file{out_, (*reader)->model_hash(), "policy learned, predictor learned"};
  const auto taken = TakeLearned(file, [&](LearnedState& state) {
    policy->VisitLearned(state);
    predictor->VisitLearned(state);
  });
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->left_bytes, 0u);
  std::vector<float> popularity(static_cast<size_t>(store.experts_per_layer));
  policy->Popularity(store.moe_layers.front(), popularity);
  EXPECT_NE(*std::ranges::max_element(popularity), *std::ranges::min_element(popularity));

  const CommandResult again = RunProgram("moed-plan", Plan("learn", {}));
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("--force"));
}

TEST_F(LearnCommand, InterruptedAndResumedItLearnsTheSame) {
  Prepare(MakeTinyCheckpoint("olmoe"), "q8", 2000);
  const auto arguments = [&](const std::string& out) { return Plan("learn", {"--out", out}, 6000); };
  const CommandResult made = RunProgram("moed-plan", arguments(whole()));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const bool kept = InterruptOften(arguments(out_));
  if (!std::filesystem::exists(out_)) {
    const CommandResult last = RunProgram("moed-plan", arguments(out_));
    ASSERT_EQ(last.exit_code, 0) << last.err;
    EXPECT_EQ(last.err.find("resuming") != std::string::npos, kept) << last.err;
  }
  EXPECT_EQ(FileContents(out_), FileContents(whole()));
  EXPECT_FALSE(std::filesystem::exists(out_ + ".unfinished"));
}

}  // namespace
}  // namespace moed
