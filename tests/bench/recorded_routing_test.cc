// Recorded routing in the place of the demo model's router: where tokens go, what the expert path is told, what gates answer.
#include "bench/recorded/recorded_routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "server/app.h"
#include "spdlog/spdlog.h"
#include "tests/system/demo_rig.h"
#include "tests/system/passing_provider.h"

namespace moed {
namespace recorded_routing_test {

using ::testing::HasSubstr;
using testing::Rig;
using testing::RigOptions;

constexpr int kLayers = 8, kTopK = 4, kExperts = 32;  // of the demo model

std::string MessageOf(const absl::Status& status) { return StrCat(status.message()); }

// Of each length a sequence. Weights differ in every choice, fall, and add up to 255 as those of a softmax do.
RoutingTrace MadeUpTrace(const std::vector<size_t>& lengths) {
  RoutingTrace trace{.shape = {.top_k = kTopK, .experts = kExperts}};
  for (int layer = 0; layer < kLayers; ++layer) trace.shape.layers.push_back(LayerId(layer));
  std::mt19937 random(1);
  for (const size_t length : lengths) {
    trace.sequences.push_back({trace.tokens(), length, ""});
    for (size_t token = 0; token < length; ++token) {
      trace.token_ids.push_back(TokenId(static_cast<int32_t>(1000 + trace.tokens())));
      for (int layer = 0; layer < kLayers; ++layer) {
        std::vector<uint16_t> all(kExperts);
        for (size_t e = 0; e < all.size(); ++e) all[e] = static_cast<uint16_t>(e);
        std::ranges::shuffle(all, random);
        trace.experts.insert(trace.experts.end(), all.begin(), all.begin() + kTopK);
        trace.probabilities.insert(trace.probabilities.end(), {120, 70, 40, 25});
      }
    }
  }
  return trace;
}

std::unique_ptr<RecordedRouting> Routing(const std::vector<size_t>& lengths, std::optional<double> recall = std::nullopt) {
  auto routing = RecordedRouting::Create(MadeUpTrace(lengths), recall);
  EXPECT_TRUE(routing.ok()) << routing.status();
  return *std::move(routing);
}

// Notes what the expert path is told.
class Watch final : public testing::PassingProvider {
 public:
  explicit Watch(ExpertProvider& next) : PassingProvider(next) {}
  void OnToken(SequenceId sequence, TokenId token) override {
    tokens[sequence].push_back(token);
    PassingProvider::OnToken(sequence, token);
  }
  void Begin(const LayerRouting& routing) override {
    for (const TokenRouting& token : routing.tokens) {
      EXPECT_EQ(token.masked, 0);
      routed_tokens[{token.sequence, routing.layer}].push_back(token.token);
      auto& noted = choices[{token.sequence, routing.layer}];
      noted.insert(noted.end(), token.choices.begin(), token.choices.end());
    }
    PassingProvider::Begin(routing);
  }

  std::map<SequenceId, std::vector<TokenId>> tokens;
  std::map<std::pair<SequenceId, LayerId>, std::vector<TokenId>> routed_tokens;
  std::map<std::pair<SequenceId, LayerId>, std::vector<ExpertChoice>> choices;
};

// That `count` tokens of a request were those of the recorded sequence, from its first on and then again.
void ExpectPlayed(const RoutingTrace& trace, const TraceSequence& played, SequenceId sequence, size_t count, const Watch& watch) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(trace.token_ids[played.first + i % played.tokens]);
  EXPECT_EQ(watch.tokens.at(sequence), ids);
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(watch.routed_tokens.at({sequence, LayerId(layer)}), ids);
    const std::vector<ExpertChoice>& choices = watch.choices.at({sequence, LayerId(layer)});
    ASSERT_EQ(choices.size(), count * kTopK);
    for (size_t i = 0; i < count; ++i) {
      const size_t at = trace.At(played.first + i % played.tokens, layer);
      for (size_t slot = 0; slot < kTopK; ++slot) {
        EXPECT_EQ(choices[i * kTopK + slot].expert, trace.experts[at + slot]);
        EXPECT_NEAR(choices[i * kTopK + slot].probability, static_cast<float>(trace.probabilities[at + slot]) / 255, 1e-5);
      }
    }
  }
}

Config DemoConfig(const PresetChoice& preset) {
  spdlog::set_level(spdlog::level::off);
  Config config;
  config.store = testing::DemoStorePath("q8");
  config.memory_budget = 64 << 20;
  config.listen = {"127.0.0.1", 0};
  config.metrics_listen.reset();
  config.preset = preset;
  return config;
}

class Daemon {
 public:
  Daemon(RoutingSource& routing, const PresetChoice& preset) : app_(DemoConfig(preset), &routing) {
    const absl::Status started = app_.Start();
    MOED_CHECK(started.ok());
    run_ = std::thread([this] { EXPECT_TRUE(app_.Run().ok()); });
    client_ = Client::Connect(app_.address()).value();
  }
  ~Daemon() {
    EXPECT_TRUE(app_.RequestStop());
    run_.join();
  }
  Client& client() { return *client_; }

 private:
  App app_;
  std::thread run_;
  std::unique_ptr<Client> client_;
};

moe::v1::GenerateRequest Request(int sequence, int new_tokens) {
  moe::v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(sequence);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stopping()->set_max_new_tokens(new_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

TEST(RecordedRoutingTest, TokensGoWhereTheSequenceOfTheirPromptWent) {
  const RoutingTrace trace = MadeUpTrace({5, 20});
  const auto routing = Routing({5, 20});
  Rig rig(RigOptions{});
  Watch watch(rig.provider());
  const auto provider = routing->Before(watch);
  rig.recorder = provider.get();
  // Prompts of different lengths in pieces of two, then both answers in the same steps. The second plays its sequence again.
  rig.GreedyTogether({testing::Tokens({1, 17, 18}), testing::Tokens({2})}, 8, 2);
  ExpectPlayed(trace, trace.sequences[1], SequenceId(1), 10, watch);
  ExpectPlayed(trace, trace.sequences[0], SequenceId(2), 8, watch);
}

TEST(RecordedRoutingTest, BitsAreTheSameWhateverIsCachedAndHowStepsAreCut) {
  const auto logits = [](const RigOptions& options, int chunk) {
    const auto routing = Routing({30});
    Rig rig(options);
    const auto provider = routing->Before(rig.provider());
    rig.recorder = provider.get();
    std::vector<float> all;
    rig.Greedy(testing::Tokens({0, 5, 6, 7}), 12, chunk, &all);
    return all;
  };
  const std::vector<float> reference = logits({}, 1);
  ASSERT_FALSE(reference.empty());
  EXPECT_EQ(logits({.policy = "learned", .predictor = "token-id", .slots = 9}, 1), reference);
  EXPECT_EQ(logits({.policy = "lfu", .compute = "scalar", .slots = 20}, 1), reference);
}

// The tickets that gates are asked with are those of the tokens: a look-ahead that knows everything is never wrong.
TEST(RecordedRoutingTest, PredictorsAreGivenTheRecordOfTheirToken) {
  for (const double recall : {0.0, 1.0}) {
    const auto routing = Routing({40, 40}, recall);
    Daemon daemon(*routing, {.preset = "load-on-demand-lru", .predictor = "stacked-gate"});
    for (const int sequence : {1, 0}) EXPECT_TRUE(daemon.client().Generate(Request(sequence, 12)).ok());
    const moe::v1::PhaseStats decode = daemon.client().GetStats(1).value().decode();
    EXPECT_GT(decode.predictions_routed(), 0u);
    // The first layer is guessed by nobody.
    EXPECT_EQ(decode.predictions_right() * kLayers, recall == 1 ? decode.predictions_routed() * (kLayers - 1) : 0u);
  }
}

TEST(RecordedRoutingTest, GatesKnowTheStatedShare) {
  const RoutingTrace trace = MadeUpTrace({200});
  const auto share_right = [&](double recall, int ahead) {
    const auto routing = Routing({200}, recall);
    int right = 0, named = 0;
    for (size_t token = 0; token < trace.tokens(); ++token) {
      for (int layer = ahead; layer < kLayers; ++layer) {
        const float ticket[] = {static_cast<float>(token), static_cast<float>(layer - ahead)};
        std::vector<float> answer(kExperts);
        routing->gate()(LayerId(layer), ticket, answer);
        named += static_cast<int>(std::ranges::count_if(answer, [](float p) { return p > 0; }));
        for (size_t slot = 0; slot < kTopK; ++slot) right += answer[trace.experts[trace.At(token, layer) + slot]] > 0;
      }
    }
    EXPECT_EQ(named, static_cast<int>(trace.tokens()) * (kLayers - ahead) * kTopK) << "as many as the router chooses";
    return static_cast<double>(right) / named;
  };
  EXPECT_EQ(share_right(1, 1), 1);
  EXPECT_EQ(share_right(0, 1), 0);
  EXPECT_NEAR(share_right(0.8, 1), 0.8, 0.02);
  EXPECT_NEAR(share_right(0.8, 2), 0.64, 0.02) << "two layers ahead";
  EXPECT_EQ(Routing({5})->gate(), nullptr);
}

TEST(RecordedRoutingTest, WhatCannotBeIsNamed) {
  EXPECT_THAT(MessageOf(RecordedRouting::Create(MadeUpTrace({1}), 1.5).status()),
              HasSubstr("gate recall 1.5: allowed is 0 to 1"));
  const auto started = [](const RoutingTrace& trace, const PresetChoice& preset) {
    auto routing = RecordedRouting::Create(trace, std::nullopt);
    EXPECT_TRUE(routing.ok());
    return MessageOf(App(DemoConfig(preset), routing->get()).Start());
  };
  RoutingTrace other = MadeUpTrace({1});
  other.shape.experts = 64;
  EXPECT_THAT(started(other, {}),
              HasSubstr("recorded routing is of 8 layers, top-4 of 64 experts; the store has 8, top-4 of 32"));
  EXPECT_THAT(started(MadeUpTrace({1}), {.preset = "swapmoe-equal"}), HasSubstr("router mask swapmoe asks for all logits"));
  EXPECT_THAT(started(MadeUpTrace({1}), {.predictor = "stacked-gate"}), HasSubstr("asks the model's gates"));
}

}  // namespace recorded_routing_test
}  // namespace moed
