// Answers with drafts are those without, whatever a request asks for; text that repeats itself takes fewer steps.
#include <gtest/gtest.h>

#include <random>

#include "core/grammar/matcher_pool.h"
#include "tests/engine/prefix_requests.h"

namespace moed {
namespace step_engine_draft_test {

// Goes round in circles, and at times leaves them: the next letter hangs on the last two, but for one history in eight.
void CirclingLogits(std::span<const TokenId> history, std::span<float> logits) {
  FakeLogits(history, logits);
  const bool leaves = static_cast<int>(logits[0] * 1024) % 8 == 0;
  if (leaves || history.size() < 2) return;
  const int last = history.back().value(), before = history[history.size() - 2].value();
  logits[static_cast<size_t>('a' + (last * 3 + before) % 8)] += 6;
}

// A step takes 100 units, and 10 for each token: drafts pay.
std::unique_ptr<Harness> Circling(HarnessOptions options, bool prompt_lookup) {
  options.engine.prompt_lookup = prompt_lookup;
  options.engine.max_context = 400;
  options.engine.max_new_tokens = 300;
  auto harness = std::make_unique<Harness>(options);
  harness->model->logits = CirclingLogits;
  harness->model->on_forward = [&clock = harness->clock](std::span<SequenceChunk> chunks) {
    clock.AdvanceNanos(100);
    for (const SequenceChunk& chunk : chunks) clock.AdvanceNanos(10 * static_cast<int64_t>(chunk.tokens.size()));
  };
  return harness;
}

void ExpectSame(const Recorder& with, const Recorder& without) {
  EXPECT_EQ(with.tokens(), without.tokens());
  EXPECT_EQ(with.text, without.text);
  ASSERT_EQ(with.infos.size(), without.infos.size());
  for (size_t i = 0; i < with.infos.size(); ++i) {
    EXPECT_EQ(with.infos[i].logprob, without.infos[i].logprob);
    EXPECT_EQ(with.infos[i].top, without.infos[i].top);
  }
  EXPECT_EQ(with.finish->status, without.finish->status);
  EXPECT_EQ(with.finish->reason, without.finish->reason);
  EXPECT_EQ(with.finish->stop_string, without.finish->stop_string);
  EXPECT_EQ(with.finish->stop_token, without.finish->stop_token);
  EXPECT_EQ(with.finish->completion_tokens, without.finish->completion_tokens);
  EXPECT_EQ(with.finish->session_tokens, without.finish->session_tokens);
}

EngineRequest RandomRequest(std::mt19937_64& random, int number) {
  EngineRequest request = Ask(RandomLetters(random, 1 + random() % 60), 20 + static_cast<int>(random() % 150));
  request.name = "request " + std::to_string(number);
  request.logprobs = random() % 2 == 0;
  request.top_logprobs = request.logprobs ? 3 : 0;
  request.sampling.temperature = random() % 2 == 0 ? 0 : 1;
  request.sampling.seed = random();
  if (random() % 3 == 0) request.sampling.repetition_penalty = 1.05f;
  if (random() % 3 == 0) request.stopping.ignore_eos = false, request.stopping.min_new_tokens = static_cast<int>(random() % 20);
  if (random() % 3 == 0) request.stopping.stop_strings = {"abca", "hhh"};
  if (random() % 4 == 0) request.session_id = "session " + std::to_string(number / 6);
  return request;
}

struct Shape {
  int window;
  bool state;
  int max_step_tokens;
  int pages;
};

class StepEngineDraftTest : public testing::TestWithParam<Shape> {
 protected:
  HarnessOptions Options() const {
    HarnessOptions options;
    options.window = GetParam().window;
    options.state = GetParam().state;
    options.engine.max_step_tokens = GetParam().max_step_tokens;
    options.pages = GetParam().pages;
    options.slots = 4;
    return options;
  }
};

TEST_P(StepEngineDraftTest, AnswersAreThoseWithoutDrafts) {
  const auto with = Circling(Options(), true), without = Circling(Options(), false);
  std::mt19937_64 random(5);
  for (int i = 0; i < 60; ++i) {
    const EngineRequest request = RandomRequest(random, i);
    auto a = with->Submit(request), b = without->Submit(request);
    if (random() % 4 == 0) {  // another one beside it, from some step on
      for (int step = static_cast<int>(random() % 30); step > 0; --step) with->engine->RunOneStep();
      EngineRequest beside = RandomRequest(random, 1000 + i);
      beside.session_id.clear();
      auto c = with->Submit(beside), d = without->Submit(beside);
      with->RunAll(), without->RunAll();
      ExpectSame(*c, *d);
    }
    with->RunAll(), without->RunAll();
    ExpectSame(*a, *b);
    if (HasFailure()) FAIL() << "request " << i;
  }
  const EngineStats drafted = with->engine->Stats(), plain = without->engine->Stats();
  EXPECT_EQ(plain.drafted_tokens, 0u);
  EXPECT_EQ(drafted.generated_tokens, plain.generated_tokens);
  if (GetParam().state) {
    EXPECT_EQ(drafted.drafted_tokens, 0u) << "a state cannot be taken back";
  } else {
    EXPECT_GT(drafted.accepted_draft_tokens, drafted.drafted_tokens / 3);
    EXPECT_LT(drafted.steps, plain.steps * 9 / 10);
  }
  with->ExpectClean();
  without->ExpectClean();
}

INSTANTIATE_TEST_SUITE_P(Shapes, StepEngineDraftTest,
                         testing::Values(Shape{0, false, 16, 64}, Shape{0, false, 4, 26}, Shape{20, false, 16, 64},
                                         Shape{0, true, 16, 64}));

TEST(StepEngineDraftOffTest, WhereNothingMayDifferOrAnotherAnswers) {
  struct Case {
    std::string_view name;
    std::function<void(HarnessOptions&, EngineRequest&)> apply;
  };
  const Case cases[] = {
      {"steps of one token", [](auto& options, auto&) { options.engine.max_running = options.engine.max_step_tokens = 1; }},
      {"not exact", [](auto&, auto& request) { request.fidelity = Fidelity::Bounded(0.1f); }},
      {"scored", [](auto&, auto& request) { request.kind = RequestKind::kScore; }},
  };
  for (const Case& c : cases) {
    HarnessOptions options;
    EngineRequest request = Ask(Bytes("abcabcabcabcabcabcabcabc"), 60);
    c.apply(options, request);
    const auto harness = Circling(options, true);
    harness->Submit(request);
    harness->RunAll();
    EXPECT_EQ(harness->engine->Stats().drafted_tokens, 0u) << c.name;
  }
}

TEST(StepEngineDraftOffTest, DraftsThatCostMoreThanTheyGiveEndByThemselves) {
  const auto harness = Circling({}, true);
  harness->model->on_forward = [&](std::span<SequenceChunk> chunks) {
    for (const SequenceChunk& chunk : chunks) harness->clock.AdvanceNanos(100 * static_cast<int64_t>(chunk.tokens.size()));
  };
  harness->Submit(Ask(Bytes("abcdefgh"), 300));
  harness->RunAll();
  const EngineStats stats = harness->engine->Stats();
  EXPECT_GT(stats.drafted_tokens, 0u) << "tried";
  EXPECT_LT(stats.drafted_tokens, 30u);
}

// What a draft pushes out of the cache the next steps read again: by its price it pays, in all it does not.
TEST(StepEngineDraftOffTest, DraftsThatMakeLaterStepsDearEndByThemselves) {
  int64_t took[2] = {};
  for (const bool with : {false, true}) {
    const auto harness = Circling({}, with);
    int dear = 0;  // steps
    harness->model->on_forward = [&](std::span<SequenceChunk> chunks) {
      const bool drafted = chunks.front().phase == Phase::kDecode && chunks.front().tokens.size() > 1;
      harness->clock.AdvanceNanos(dear > 0 ? 400 : 100);
      dear = drafted ? 8 : std::max(dear - 1, 0);
    };
    const int64_t begun = harness->clock.NowNanos();
    for (int i = 0; i < 40; ++i) {
      harness->Submit(Ask(Bytes("abcdefgh"), 300));
      harness->RunAll();
    }
    took[with] = harness->clock.NowNanos() - begun;
  }
  EXPECT_LT(took[true], took[false] * 5 / 4);
}

// The step in which a draft was computed fails: what was there before it stays as it was.
TEST(StepEngineDraftFailureTest, AStepThatFailsLeavesItsSessionAsItWas) {
  for (const int failing_step : {20, 21, 22, 23, 24, 25, 26, 27}) {
    const auto harness = Circling({}, true);
    auto first = harness->Submit(Ask(Bytes("abcdabcd"), 20, "s"));
    harness->RunAll();
    int steps = 0;
    harness->model->fails = [&](const SequenceChunk&) {
      return ++steps == failing_step ? absl::DataLossError("an expert cannot be read") : absl::OkStatus();
    };
    auto failed = harness->Submit(Ask(Bytes("ab"), 200, "s"));
    harness->RunAll();
    EXPECT_EQ(failed->finish->status.code(), absl::StatusCode::kDataLoss);
    harness->model->fails = nullptr;
    EngineRequest next = Ask(Bytes("ba"), 30, "s");
    next.expected_tokens = first->finish->session_tokens;
    auto again = harness->Submit(next);
    const auto plain = Circling({}, false);
    auto reference = plain->Submit(Ask(Joined(Joined(Bytes("abcdabcd"), first->tokens()), Bytes("ba")), 30));
    harness->RunAll(), plain->RunAll();
    EXPECT_EQ(again->tokens(), reference->tokens());
    harness->ExpectClean();
  }
}

// A page that a draft has filled is known by the tokens that were chosen.
TEST(StepEngineDraftPageTest, WhatADraftHasFilledIsKnown) {
  const auto harness = Circling({}, true);
  harness->model->logits = [](std::span<const TokenId> history, std::span<float> logits) {
    FakeLogits(history, logits);
    logits[static_cast<size_t>('a' + (history.back().value() - 'a' + 1) % 8)] += 100;
  };
  const std::vector<TokenId> prompt = Bytes("abcdefghabcdefgh");
  const auto first = harness->Submit(Ask(prompt, 40));
  harness->RunAll();
  EXPECT_GT(harness->engine->Stats().accepted_draft_tokens, 20u);
  const auto next = harness->Submit(Ask(Joined(prompt, first->tokens()), 1));
  harness->RunAll();
  EXPECT_EQ(next->cached_tokens, 55) << "all but the last, which is computed for its logits";
  harness->ExpectClean();
}

TEST(StepEngineDraftFormatTest, DraftsKeepTheAnswersFormat) {
  grammar::MatcherPool pool(ByteTokenizer(), kVocabulary, 16 << 20);
  std::string texts[2];
  for (const bool drafts : {false, true}) {
    const auto harness = Circling({}, drafts);
    for (int seed = 0; seed < 8; ++seed) {
      EngineRequest request = Ask(Bytes("abcabcabc"), 120);
      request.stopping.ignore_eos = false;
      request.sampling.temperature = 1;
      request.sampling.seed = static_cast<uint64_t>(seed);
      request.format = *pool.Make(*grammar::SyntaxOf({grammar::TextFormat::Kind::kRegex, "([a-c]{6}d){3,9}"}));
      auto recorder = harness->Submit(request);
      harness->RunAll();
      texts[drafts] += recorder->text + "\n";
    }
    EXPECT_EQ(harness->engine->Stats().accepted_draft_tokens > 0, drafts);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

}  // namespace step_engine_draft_test
}  // namespace moed
