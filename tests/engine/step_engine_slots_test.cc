// A model one of whose layers has a window: sequences need slots beside their pages, and no longer hold what they forget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/engine_harness.h"

namespace moed {
namespace step_engine_slots_test {

constexpr int kContext = 400;  // several times what a slot holds of the layer with the window
constexpr int kMostNew = 200;

struct Shape {
  int max_running;
  int max_step_tokens;
  int pages;
  int slots;
  int window;
};

HarnessOptions OptionsOf(const Shape& shape) {
  HarnessOptions options;
  options.engine.max_context = kContext;
  options.engine.max_new_tokens = kMostNew;
  options.engine.max_running = shape.max_running;
  options.engine.max_step_tokens = shape.max_step_tokens;
  options.pages = shape.pages;
  options.slots = shape.slots;
  options.window = shape.window;
  return options;
}

std::string Letters(std::mt19937& random, int least, int most) {
  std::string text;
  for (int i = least + static_cast<int>(random() % (most - least + 1)); i-- > 0;) text += static_cast<char>('a' + random() % 26);
  return text;
}

Expected ReferenceOf(const EngineRequest& request, const std::vector<TokenId>& history = {}) {
  return Reference(request, history, kContext, kMostNew);
}

class StepEngineSlotsTest : public testing::TestWithParam<Shape> {};

TEST_P(StepEngineSlotsTest, TokensAreThoseOfANaiveLoop) {
  Harness harness(OptionsOf(GetParam()));
  std::mt19937 random(11);
  std::vector<std::pair<std::shared_ptr<Recorder>, Expected>> answers;
  int running = 0;
  for (int i = 0; i < 16; ++i) {
    EngineRequest request = GreedyRequest(Letters(random, 1, 180), 1 + static_cast<int>(random() % 150));
    const Expected expected = ReferenceOf(request);
    answers.emplace_back(harness.Submit(std::move(request)), expected);
    if (i % 3 == 0) harness.engine->RunOneStep();
    running = std::max(running, harness.engine->Stats().running);
  }
  while (harness.engine->RunOneStep()) running = std::max(running, harness.engine->Stats().running);
  for (const auto& [recorder, expected] : answers) ExpectAnswer(*recorder, expected);
  EXPECT_LE(running, std::min(GetParam().slots, GetParam().max_running));
  EXPECT_GT(running, GetParam().slots > 1 && GetParam().max_running > 1 ? 1 : 0);
  harness.ExpectClean();
}

// Turns of more conversations than there are slots. Some are cancelled, some fail in the middle, and each goes on as if those had
// not been.
TEST_P(StepEngineSlotsTest, ConversationsGoOnWhateverBecameOfTheirMemory) {
  Harness harness(OptionsOf(GetParam()));
  std::mt19937 random(29);
  struct Conversation {
    std::string name;
    std::vector<TokenId> history;
  };
  std::vector<Conversation> conversations{{"a", {}}, {"b", {}}, {"c", {}}, {"d", {}}};
  int continued = 0, recomputed = 0;
  for (int round = 0; round < 14; ++round) {
    struct Turn {
      Conversation* conversation;
      EngineRequest request;
      Expected expected;
      std::shared_ptr<Recorder> recorder;
    };
    std::vector<Turn> turns;
    for (Conversation& conversation : conversations) {
      if (random() % 4 == 0) continue;
      EngineRequest request = GreedyRequest(Letters(random, 1, 60), 1 + static_cast<int>(random() % 50));
      request.session_id = conversation.name;
      if (conversation.history.size() + request.prompt.size() + 50 > kContext) continue;
      const Expected expected = ReferenceOf(request, conversation.history);
      turns.push_back({&conversation, request, expected, harness.Submit(request)});
    }
    // After some steps a turn is cancelled, or its chunk fails.
    for (int step = static_cast<int>(random() % 40); step > 0; --step) harness.engine->RunOneStep();
    if (!turns.empty() && round % 3 == 1) {
      harness.engine->Cancel(harness.ids[turns[0].request.name], absl::CancelledError("no"));
    } else if (round % 3 == 2) {
      harness.model->fails = [](const SequenceChunk&) { return absl::DataLossError("bad expert"); };
      harness.engine->RunOneStep();
      harness.model->fails = nullptr;
    }
    harness.RunAll();
    for (const Turn& turn : turns) {
      if (turn.recorder->started && !turn.conversation->history.empty()) {
        ++(turn.recorder->cached_tokens > 0 ? continued : recomputed);
      }
      if (!turn.recorder->finish->status.ok()) continue;
      ExpectAnswer(*turn.recorder, turn.expected);
      std::vector<TokenId>& history = turn.conversation->history;
      history.insert(history.end(), turn.request.prompt.begin(), turn.request.prompt.end());
      history.insert(history.end(), turn.expected.tokens.begin(), turn.expected.tokens.end());
    }
  }
  EXPECT_TRUE(recomputed > 0 || GetParam().slots >= 4);
  EXPECT_TRUE(continued > 0 || GetParam().slots == 1);
  harness.ExpectClean();
}

INSTANTIATE_TEST_SUITE_P(Shapes, StepEngineSlotsTest,
                         testing::Values(Shape{1, 1, 25, 1, 5}, Shape{4, 16, 40, 1, 5}, Shape{4, 16, 60, 2, 33},
                                         Shape{4, 70, 200, 4, 5}, Shape{8, 200, 200, 3, 100}, Shape{8, 64, 30, 8, 17}),
                         [](const auto& info) {
                           const Shape& shape = info.param;
                           return "running" + std::to_string(shape.max_running) + "_tokens" +
                                  std::to_string(shape.max_step_tokens) + "_pages" + std::to_string(shape.pages) + "_slots" +
                                  std::to_string(shape.slots) + "_window" + std::to_string(shape.window);
                         });

EngineRequest Turn(const std::string& session, int prompt, int new_tokens) {
  EngineRequest request = GreedyRequest(std::string(prompt, 'x'), new_tokens);
  request.session_id = session;
  return request;
}

TEST(StepEngineSlotsTest, TheLeastRecentlyUsedConversationLosesItsSlotFirst) {
  Harness harness(OptionsOf({4, 64, 200, 2, 5}));
  for (const char* session : {"a", "b", "c"}) {
    harness.Submit(Turn(session, 20, 2));
    harness.RunAll();
  }
  const auto cached = [&](const char* session) {
    const auto recorder = harness.Submit(Turn(session, 1, 2));
    harness.RunAll();
    return recorder->cached_tokens;
  };
  EXPECT_GT(cached("c"), 0);
  EXPECT_GT(cached("b"), 0);
  EXPECT_EQ(cached("a"), 0);
  EXPECT_EQ(cached("c"), 0) << "it gave its slot to a";
  harness.ExpectClean();
}

TEST(StepEngineSlotsTest, AConversationCutBackByLittleKeepsItsMemory) {
  for (const int answered : {3, 200}) {  // tokens of the answer that is cancelled
    Harness harness(OptionsOf({1, 64, 40, 1, 5}));
    harness.Submit(Turn("s", 150, 2));
    harness.RunAll();
    const EngineRequest cancelled = Turn("s", 10, kMostNew);
    const auto recorder = harness.Submit(cancelled);
    while (static_cast<int>(recorder->infos.size()) < std::min(answered, kMostNew - 1)) harness.engine->RunOneStep();
    harness.engine->Cancel(harness.ids[cancelled.name], absl::CancelledError("no"));
    harness.RunAll();
    const auto next = harness.Submit(Turn("s", 4, 2));
    harness.RunAll();
    EXPECT_EQ(next->cached_tokens, answered == 3 ? 152 : 0);
    EXPECT_TRUE(next->finish->status.ok());
    harness.ExpectClean();
  }
}

}  // namespace step_engine_slots_test
}  // namespace moed
