#include "core/expert/predictors/activation_path.h"

#include "core/expert/learning/activation_paths.h"
#include "tests/expert/provider_rig.h"

namespace moed {
namespace activation_path_test {

using testing::ElementsAre;
using testing::IsEmpty;

void Route(ExpertPredictor& predictor, LayerId layer, std::vector<int32_t> experts, Phase phase = Phase::kDecode) {
  Routing routing(layer, std::move(experts), phase);
  predictor.OnRouted(routing.Get());
}
std::vector<Guess> GuessesOf(ExpertPredictor& predictor, LayerId from, SequenceId sequence = kSession) {
  std::vector<Guess> guesses;
  predictor.Predict(sequence, from, guesses);
  return guesses;
}
std::vector<std::pair<int32_t, float>> Of(const std::vector<Guess>& guesses) {
  std::vector<std::pair<int32_t, float>> seen;
  for (const Guess& guess : guesses) seen.emplace_back(guess.key.expert, guess.probability);
  return seen;
}

auto Near(int32_t expert, float probability) { return testing::Pair(expert, testing::FloatEq(probability)); }

std::shared_ptr<const ActivationPaths> Dictionary() {
  auto paths = std::make_shared<ActivationPaths>(3, kExperts, 2, 1 << 16);
  const std::vector<int32_t> often = {4, 5}, once = {4, 6};
  for (int i = 0; i < 3; ++i) paths->Add(2, {{0, 1}, {2, 3}}, often);
  paths->Add(2, {{0, 1}, {2, 3}}, once);
  paths->Add(1, {{}, {0, 1}}, std::vector<int32_t>{2, 3});
  return paths;
}

PartOptions With(std::shared_ptr<const ActivationPaths> paths) {
  PartOptions options;
  options.SetFile(kPathsOption, std::move(paths));
  return options;
}

TEST(ActivationPathPredictor, ByFallingProbabilityOneAfterTheOther) {
  auto predictor = MakePredictor("activation-path", {StoreContext()}, With(Dictionary())).value();
  predictor->OnSequenceStart(kSession);
  Route(*predictor, LayerId(0), {1, 0});
  EXPECT_THAT(Of(GuessesOf(*predictor, LayerId(0))), ElementsAre(std::pair(2, 1.f), std::pair(3, 1.f)));
  Route(*predictor, LayerId(2), {3, 2});
  const std::vector<Guess> guesses = GuessesOf(*predictor, LayerId(2));
  EXPECT_THAT(Of(guesses), ElementsAre(std::pair(4, 1.f), std::pair(5, .75f), std::pair(6, .25f)));
  EXPECT_EQ(guesses[0].key.layer, LayerId(3));
  EXPECT_EQ(guesses[0].layer_distance, 1);
  EXPECT_THAT(GuessesOf(*predictor, LayerId(0)), IsEmpty());                 // not the layer seen last
  EXPECT_THAT(GuessesOf(*predictor, LayerId(2), SequenceId(9)), IsEmpty());  // not in the step
  Route(*predictor, LayerId(3), {4, 5});
  EXPECT_THAT(GuessesOf(*predictor, LayerId(3)), IsEmpty());

  const PrefetchBudget budget = predictor->Budget({}).value();
  EXPECT_EQ(budget.max_loads, INT_MAX);
  EXPECT_EQ(budget.min_probability, 0);
}

TEST(ActivationPathPredictor, ADictionaryStaysAsItWasMade) {
  const auto paths = Dictionary();
  auto predictor = MakePredictor("activation-path", {StoreContext()}, With(paths)).value();
  for (int i = 0; i < 20; ++i) {
    Route(*predictor, LayerId(0), {0, 1});
    Route(*predictor, LayerId(2), {7, 6});
  }
  Route(*predictor, LayerId(0), {0, 1});
  EXPECT_THAT(Of(GuessesOf(*predictor, LayerId(0))), ElementsAre(std::pair(2, 1.f), std::pair(3, 1.f)));
  EXPECT_EQ(PathsFileBytes(std::any(paths)), paths->memory_bytes());
}

TEST(ActivationPathPredictor, LearnsWithoutOne) {
  auto predictor = MakePredictor("activation-path", {.model = StoreContext()}).value();
  Route(*predictor, LayerId(0), {0, 1});
  EXPECT_THAT(GuessesOf(*predictor, LayerId(0)), IsEmpty());
  Route(*predictor, LayerId(2), {7, 6});
  Route(*predictor, LayerId(0), {0, 1});
  EXPECT_THAT(Of(GuessesOf(*predictor, LayerId(0))), ElementsAre(std::pair(6, 1.f), std::pair(7, 1.f)));
}

// Any of a prompt's tokens may want an expert.
TEST(ActivationPathPredictor, APromptsTokensAddUp) {
  auto paths = std::make_shared<ActivationPaths>(3, kExperts, 2, 1 << 16);
  for (const int32_t chosen : {4, 5}) paths->Add(1, {{}, {0}}, std::vector<int32_t>{chosen});
  paths->Add(1, {{}, {1}}, std::vector<int32_t>{5});
  auto predictor = MakePredictor("activation-path", {StoreContext()}, With(paths)).value();
  Routing routing(LayerId(0), {0}, Phase::kPrefill);
  routing.Add(kSession, {0}, Phase::kPrefill).Add(kSession, {1}, Phase::kPrefill);
  predictor->OnRouted(routing.Get());
  EXPECT_THAT(Of(GuessesOf(*predictor, LayerId(0))), ElementsAre(std::pair(5, 1.f), std::pair(4, .75f)));
}

TEST(ActivationPathPredictor, ADictionaryOfAnotherShapeIsRefused) {
  const auto paths = std::make_shared<ActivationPaths>(2, kExperts, 2, 1 << 16);
  const absl::Status status = MakePredictor("activation-path", {StoreContext()}, With(paths)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageText(status), testing::HasSubstr("2 layers of 8 experts: the model has 3 of 8"));
}

TEST(Eap, TheTopKAfterTheLayerBefore) {
  auto paths = std::make_shared<ActivationPaths>(3, kExperts, 2, 1 << 16);
  // The whole key would say 7; the layer before alone says 0, 1, 2, 3 and, less often, 4.
  paths->Add(2, {{0}, {2}}, std::vector<int32_t>{7});
  for (int i = 0; i < 5; ++i) paths->Add(2, {{1}, {2}}, std::vector<int32_t>{0, 1, 2, 3});
  for (int i = 0; i < 2; ++i) paths->Add(2, {{1}, {2}}, std::vector<int32_t>{4});
  auto predictor = MakePredictor("eap", {StoreContext()}, With(paths)).value();
  Route(*predictor, LayerId(0), {0});
  Route(*predictor, LayerId(2), {2});
  EXPECT_THAT(Of(GuessesOf(*predictor, LayerId(2))),
              ElementsAre(std::pair(0, .625f), std::pair(1, .625f), std::pair(2, .625f), std::pair(3, .625f)));
}

TEST(Eap, LearnsWhileServing) {
  auto predictor = MakePredictor("eap", {.model = StoreContext()}).value();
  const size_t bytes = predictor->memory_bytes();
  for (int i = 0; i < 5; ++i) {
    Route(*predictor, LayerId(0), {i});
    Route(*predictor, LayerId(2), {1, 2});
    Route(*predictor, LayerId(3), {i % 2 == 0 ? 6 : 7, 3});
  }
  Route(*predictor, LayerId(0), {7});  // never seen: its layer's frequency
  EXPECT_THAT(Of(GuessesOf(*predictor, LayerId(0))), ElementsAre(std::pair(1, 1.f), std::pair(2, 1.f)));
  Route(*predictor, LayerId(2), {2});
  EXPECT_THAT(Of(GuessesOf(*predictor, LayerId(2))), ElementsAre(Near(3, 1), Near(6, .6f), Near(7, .4f)));
  EXPECT_NEAR(static_cast<double>(predictor->memory_bytes()), static_cast<double>(bytes), 200);  // and a token's key
}

}  // namespace activation_path_test
}  // namespace moed
