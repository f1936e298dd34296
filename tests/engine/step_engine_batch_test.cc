// Whatever the batch, the chunks and the pages are: the tokens are those of a naive loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/base/trace.h"
#include "tests/engine/engine_harness.h"

namespace moed {
namespace step_engine_batch_test {

std::string Letters(std::mt19937& random, int least, int most) {
  std::string text;
  for (int i = least + random() % (most - least + 1); i-- > 0;) text += static_cast<char>('a' + random() % 26);
  return text;
}

// Greedy and sampled, with and without an end of sequence.
EngineRequest RandomRequest(std::mt19937& random) {
  EngineRequest request = GreedyRequest(Letters(random, 1, 50), 1 + random() % 40);
  request.stopping.ignore_eos = random() % 2 == 0;
  if (random() % 2 == 0) {
    request.sampling.temperature = 1.5f;
    request.sampling.seed = random();
    request.sampling.top_k = random() % 2 == 0 ? 5 : 0;
    request.sampling.repetition_penalty = random() % 2 == 0 ? 1.3f : 1.0f;
    request.sampling.frequency_penalty = random() % 2 == 0 ? 0.5f : 0.0f;
  }
  return request;
}

struct Shape {
  int max_running;
  int max_step_tokens;
  int pages;  // a context of 96 needs 6
};

class StepEngineShapeTest : public testing::TestWithParam<Shape> {};

TEST_P(StepEngineShapeTest, TokensAreThoseOfANaiveLoop) {
  HarnessOptions options;
  options.engine.max_running = GetParam().max_running;
  options.engine.max_step_tokens = GetParam().max_step_tokens;
  options.pages = GetParam().pages;
  Harness harness(options);
  std::mt19937 random(23);
  std::vector<std::pair<std::shared_ptr<Recorder>, Expected>> answers;
  int computed = 0;
  for (int i = 0; i < 24; ++i) {
    EngineRequest request = RandomRequest(random);
    const Expected expected = Reference(request);
    answers.emplace_back(harness.Submit(std::move(request)), expected);
    if (i % 3 == 0) harness.engine->RunOneStep();  // some arrive while others run
  }
  harness.RunAll();
  int preemptions = 0, generated = 0;
  for (const auto& [recorder, expected] : answers) {
    ExpectAnswer(*recorder, expected);
    preemptions += recorder->finish->preemptions;
    generated += recorder->finish->completion_tokens;
    computed += static_cast<int>(recorder->finish->expert_hits);
  }
  EXPECT_EQ(computed, harness.model->computed_tokens);
  EXPECT_LE(harness.model->max_step_tokens, GetParam().max_step_tokens);
  const EngineStats stats = harness.engine->Stats();
  EXPECT_EQ(stats.preemptions, static_cast<uint64_t>(preemptions));
  EXPECT_EQ(harness.provider.pauses, preemptions) << "no conversation is kept";
  EXPECT_EQ(stats.generated_tokens, static_cast<uint64_t>(generated));
  EXPECT_EQ(stats.kv_pages_used, 0);
  EXPECT_TRUE(preemptions > 0 || GetParam().max_running <= 2 || GetParam().pages > 8) << "too few pages for all";
  EXPECT_TRUE(preemptions == 0 || GetParam().pages < 48) << "pages enough for all";
  harness.ExpectClean();
}

TEST(StepEngineBatchTest, APromptBesideManyAnswersHasAPartOfEveryStep) {
  HarnessOptions options;
  options.engine.max_running = 64;
  options.engine.queue_capacity = 64;
  options.engine.max_step_tokens = 512;
  options.pages = 300;
  Harness harness(options);
  for (int i = 0; i < 63; ++i) harness.Submit(GreedyRequest("a", 40));
  harness.engine->RunOneStep();
  const auto prompt = harness.Submit(GreedyRequest(std::string(64, 'b'), 2));
  int steps = 0;
  for (; prompt->infos.empty() && steps < 100; ++steps) harness.engine->RunOneStep();
  EXPECT_EQ(steps, 2);
  harness.RunAll();
  harness.ExpectClean();
}

// One pass over the head more than answers need; more tokens once a step waits for experts anyway, and where nobody is answered.
TEST(StepEngineBatchTest, ATextThatIsScoredBesideAnAnswerWantsFewLogits) {
  HarnessOptions options;
  options.engine.max_running = 2;
  options.engine.max_step_tokens = 32;
  options.engine.logits_rows = 4;
  Harness harness(options);
  bool waits = false;
  std::vector<size_t> scored;  // tokens of each step
  harness.model->on_forward = [&](std::span<SequenceChunk> chunks) {
    scored.push_back(chunks.back().tokens.size());
    harness.clock.AdvanceNanos(1'000'000'000);
    if (waits) harness.provider.lost[chunks.front().sequence].stall_seconds += .95;
  };
  const auto answer = harness.Submit(GreedyRequest("a", 10));
  harness.engine->RunOneStep();
  EngineRequest text = GreedyRequest(std::string(90, 'b'), 1);
  text.kind = RequestKind::kScore;
  const auto score = harness.Submit(text);
  scored.clear();
  harness.engine->RunOneStep();
  waits = true;
  for (int step = 0; step < 2; ++step) harness.engine->RunOneStep();
  EXPECT_THAT(scored, testing::ElementsAre(5, 5, 31));
  harness.RunAll();
  EXPECT_EQ(score->finish->prompt_logprobs.size(), 89u);
  scored.clear();
  harness.Submit(text);
  harness.RunAll();
  EXPECT_THAT(scored, testing::ElementsAre(32, 32, 25));
  harness.ExpectClean();
}

INSTANTIATE_TEST_SUITE_P(Shapes, StepEngineShapeTest,
                         testing::Values(Shape{1, 1, 6}, Shape{1, 7, 6}, Shape{2, 2, 6}, Shape{2, 3, 8}, Shape{4, 4, 6},
                                         Shape{4, 5, 8}, Shape{4, 16, 8}, Shape{4, 16, 64}, Shape{8, 8, 6}, Shape{8, 17, 7},
                                         Shape{8, 64, 48}, Shape{8, 200, 64}),
                         [](const auto& info) {
                           return "sessions" + std::to_string(info.param.max_running) + "_tokens" +
                                  std::to_string(info.param.max_step_tokens) + "_pages" + std::to_string(info.param.pages);
                         });

TEST(StepEngineBatchTest, EveryChunkSizeGivesTheSame) {
  const EngineRequest request = GreedyRequest("the quick brown fox jumps over the dog", 8);
  const Expected expected = Reference(request);
  for (int step_tokens = 1; step_tokens <= 40; ++step_tokens) {
    HarnessOptions options;
    options.engine.max_running = 1;
    options.engine.max_step_tokens = step_tokens;
    Harness harness(options);
    auto recorder = harness.Submit(request);
    harness.RunAll();
    ExpectAnswer(*recorder, expected);
    EXPECT_EQ(harness.engine->Stats().steps, 7u + (request.prompt.size() + step_tokens - 1) / step_tokens);
  }
}

TEST(StepEngineBatchTest, DecodingIsNotHeldUpByALongPrompt) {
  HarnessOptions options;
  options.engine.max_step_tokens = 4;
  Harness harness(options);
  auto first = harness.Submit(GreedyRequest("a", 30));
  harness.engine->RunOneStep();
  auto second = harness.Submit(GreedyRequest(std::string(60, 'x'), 5));
  for (int step = 0; step < 19; ++step) {
    const size_t before = first->infos.size();
    harness.engine->RunOneStep();
    EXPECT_EQ(first->infos.size(), before + 1);
    EXPECT_TRUE(second->infos.empty());  // 60 tokens, 3 a step
  }
  harness.engine->RunOneStep();
  EXPECT_EQ(second->infos.size(), 1u);
  harness.RunAll();
  harness.ExpectClean();
}

// `step`(chunks, tokens) of each; in the time of one reading takes `read_nanos` and computing a millisecond a token, at once.
void SetSpeed(Harness& harness, int64_t read_nanos, std::function<void(size_t chunks, int tokens)> step) {
  constexpr int64_t kTokenNanos = 1'000'000;
  harness.model->on_forward = [&harness, read_nanos, step = std::move(step)](std::span<SequenceChunk> chunks) {
    int tokens = 0;
    for (const SequenceChunk& chunk : chunks) tokens += static_cast<int>(chunk.tokens.size());
    step(chunks.size(), tokens);
    const int64_t computing = tokens * kTokenNanos, waited = std::max<int64_t>(0, read_nanos - computing);
    harness.clock.AdvanceNanos(computing + waited);
    for (const SequenceChunk& chunk : chunks)
      harness.provider.lost[chunk.sequence].stall_seconds += static_cast<double>(waited) * 1e-9;
  };
}

// Tokens of each step that computes a prompt of 480 beside an answer.
std::vector<int> StepsBesideAnAnswer(int64_t read_nanos) {
  HarnessOptions options;
  options.engine.max_context = 512;
  options.engine.max_step_tokens = 256;
  Harness harness(options);
  std::vector<int> steps;
  SetSpeed(harness, read_nanos, [&](size_t chunks, int tokens) {
    if (chunks > 1 && tokens > 2) steps.push_back(tokens);
  });
  auto stream = harness.Submit(GreedyRequest("a", 30));
  harness.engine->RunOneStep();
  auto prompt = harness.Submit(GreedyRequest(std::string(480, 'x'), 2));
  harness.RunAll();
  EXPECT_EQ(stream->infos.size(), 30u);
  EXPECT_EQ(prompt->infos.size(), 2u);
  return steps;
}

TEST(StepEngineBatchTest, APromptBesideAnAnswerHasLargerStepsWhereTheyWaitForExperts) {
  EXPECT_THAT(StepsBesideAnAnswer(0), testing::ElementsAre(64, 64, 64, 64, 64, 64, 64, testing::Le(64)));
  EXPECT_THAT(StepsBesideAnAnswer(200'000'000), testing::ElementsAre(64, 150, 150, testing::Le(150)));
  EXPECT_THAT(StepsBesideAnAnswer(1'000'000'000), testing::ElementsAre(64, 256, testing::Le(256)));
}

// Tokens of each step that computes a prompt of 480 alone, up to its answer.
std::vector<int> StepsOfAPrompt(int64_t read_nanos, bool state = false) {
  HarnessOptions options;
  options.state = state;
  options.slots = 8;
  options.engine.max_context = 512;
  options.engine.max_step_tokens = 256;
  options.engine.usual_step_tokens = 64;
  Harness harness(options);
  std::vector<int> steps;
  SetSpeed(harness, read_nanos, [&](size_t, int tokens) { steps.push_back(tokens); });
  auto prompt = harness.Submit(GreedyRequest(std::string(480, 'x'), 1));
  harness.RunAll();
  EXPECT_EQ(prompt->infos.size(), 1u);
  return steps;
}

TEST(StepEngineBatchTest, APromptAloneHasLargerStepsWhereTheyWaitForExperts) {
  EXPECT_THAT(StepsOfAPrompt(0), testing::ElementsAre(64, 64, 64, 64, 64, 64, 64, 32));
  EXPECT_THAT(StepsOfAPrompt(200'000'000), testing::ElementsAre(64, 180, 180, 56));
  EXPECT_THAT(StepsOfAPrompt(1'000'000'000), testing::ElementsAre(64, 256, 160));
  EXPECT_THAT(StepsOfAPrompt(1'000'000'000, /*state=*/true), testing::ElementsAre(64, 256, 96, 64))
      << "the last checkpoint before its end is near";
}

TEST(StepEngineBatchTest, AShortPromptBehindALongOneIsAnsweredAtOnce) {
  HarnessOptions options;
  options.engine.max_step_tokens = 8;
  Harness harness(options);
  auto longest = harness.Submit(GreedyRequest(std::string(80, 'x'), 5));
  harness.engine->RunOneStep();
  auto shorter = harness.Submit(GreedyRequest("abcd", 5));
  harness.engine->RunOneStep();
  EXPECT_EQ(shorter->infos.size(), 1u);
  EXPECT_TRUE(longest->infos.empty());
  harness.RunAll();
  harness.ExpectClean();
}

// One prompt runs, a second one lacks pages: short ones go before it, one after the other, and cost neither of them anything.
TEST(StepEngineBatchTest, ShortOnesOvertakeWhoLacksPages) {
  HarnessOptions options;
  options.pages = 8;
  Harness harness(options);
  auto runs = harness.Submit(GreedyRequest(std::string(60, 'x'), 20));
  harness.engine->RunOneStep();
  auto waits = harness.Submit(GreedyRequest(std::string(60, 'y'), 20));
  std::vector<std::shared_ptr<Recorder>> overtake;
  int ended_before = 0;
  while (!runs->finish) {
    if (!overtake.empty() && overtake.back()->finish) ++ended_before;
    if (overtake.empty() || overtake.back()->finish) {
      overtake.push_back(harness.Submit(GreedyRequest(std::string(2, static_cast<char>('a' + overtake.size())), 3)));
    }
    harness.engine->RunOneStep();
    EXPECT_TRUE(overtake.back()->started) << "in the step in which it came";
    EXPECT_FALSE(waits->started) << "there is no room for both";
  }
  EXPECT_GE(ended_before, 5);
  overtake.push_back(harness.Submit(GreedyRequest("zz", 3)));
  harness.engine->RunOneStep();
  EXPECT_TRUE(waits->started) << "as soon as the first one has ended";
  harness.RunAll();
  for (const auto& recorder : overtake) EXPECT_EQ(recorder->finish->preemptions, 0);
  EXPECT_EQ(runs->finish->preemptions + waits->finish->preemptions, 0);
  harness.ExpectClean();
}

// However many short ones come, they leave a prompt that fills most pages what it lacks once the first one has ended.
TEST(StepEngineBatchTest, WhoIsOvertakenWaitsForWhoRunsAlone) {
  HarnessOptions options;
  options.pages = 8;
  options.engine.max_running = 8;
  Harness harness(options);
  auto runs = harness.Submit(GreedyRequest(std::string(20, 'x'), 12));
  harness.engine->RunOneStep();
  auto waits = harness.Submit(GreedyRequest(std::string(90, 'y'), 5));
  std::vector<std::shared_ptr<Recorder>> others;
  while (!runs->finish) {
    others.push_back(harness.Submit(GreedyRequest(std::string(2, static_cast<char>('a' + others.size())), 12)));
    harness.engine->RunOneStep();
    EXPECT_FALSE(waits->started);
  }
  EXPECT_TRUE(others.front()->started) << "somebody overtakes";
  harness.engine->RunOneStep();
  EXPECT_TRUE(waits->started);
  harness.RunAll();
  EXPECT_EQ(waits->finish->preemptions, 0);
  harness.ExpectClean();
}

// An answer that grows beyond what there is beside those whose turn was before it loses its own pages, not theirs.
TEST(StepEngineBatchTest, WhoOvertookGivesWayFirst) {
  HarnessOptions options;
  options.pages = 8;
  options.engine.max_step_tokens = 4;
  Harness harness(options);
  auto runs = harness.Submit(GreedyRequest(std::string(20, 'x'), 12));
  while (runs->infos.empty()) harness.engine->RunOneStep();
  auto waits = harness.Submit(GreedyRequest(std::string(90, 'y'), 5));
  auto overtakes = harness.Submit(GreedyRequest("ab", 40));
  harness.engine->RunOneStep();
  EXPECT_TRUE(overtakes->started);
  EXPECT_FALSE(waits->started);
  harness.RunAll();
  EXPECT_EQ(runs->finish->preemptions + waits->finish->preemptions, 0);
  EXPECT_EQ(overtakes->finish->preemptions, 1);
  harness.ExpectClean();
}

TEST(StepEngineBatchTest, ChunksCarryTheirPhase) {
  Harness harness;
  std::vector<std::pair<Phase, size_t>> chunks;
  harness.model->on_forward = [&](std::span<SequenceChunk> step) { chunks.emplace_back(step[0].phase, step[0].tokens.size()); };
  harness.Submit(GreedyRequest(std::string(20, 'x'), 3));
  harness.RunAll();
  const std::vector<std::pair<Phase, size_t>> expected{
      {Phase::kPrefill, 16}, {Phase::kPrefill, 4}, {Phase::kDecode, 1}, {Phase::kDecode, 1}};
  EXPECT_EQ(chunks, expected);
}

TEST(StepEngineBatchTest, OldestFirst) {
  HarnessOptions options;
  options.engine.max_running = 2;
  Harness harness(options);
  std::vector<int> finished;
  for (int i = 0; i < 6; ++i) {
    auto recorder = harness.Submit(GreedyRequest("p", 5));
    recorder->on_finish = [&finished, i] { finished.push_back(i); };
  }
  harness.RunAll();
  EXPECT_THAT(finished, testing::ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(StepEngineBatchTest, EveryStepIsInTheTrace) {
  HarnessOptions options;
  Harness clocked;
  Trace trace(clocked.clock, 100);
  options.trace = &trace;
  Harness harness(options);
  harness.Submit(GreedyRequest("abc", 4));
  harness.RunAll();
  // One step with the prompt, three that decode; in each a token is sampled and handed out.
  const auto parts = trace.Parts();
  ASSERT_EQ(parts.size(), 3u);
  for (const TracePart& part : parts) {
    EXPECT_THAT(part.name, testing::AnyOf("step", "sampling", "hand out"));
    EXPECT_THAT(part.count, testing::ElementsAre(1, 3)) << part.name;
  }
}

// Random arrivals, cancellations and time: order of calls (the recorder checks it), one end each, nothing left behind.
TEST(StepEngineBatchTest, RandomInterleavingsKeepTheInvariants) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    HarnessOptions options;
    options.engine.max_running = 1 + random() % 5;
    options.engine.max_step_tokens = options.engine.max_running + random() % 10;
    options.engine.max_kept_sessions = random() % 3;
    options.pages = 6 + random() % 10;
    Harness harness(options);
    harness.model->fails = [&](const SequenceChunk&) {
      return random() % 50 == 0 ? absl::DataLossError("bad") : absl::OkStatus();
    };
    std::vector<std::shared_ptr<Recorder>> recorders;
    for (int event = 0; event < 200; ++event) {
      switch (random() % 5) {
        case 0: {
          EngineRequest request = RandomRequest(random);
          if (random() % 2 == 0) request.session_id = std::string(1, static_cast<char>('A' + random() % 4));
          if (random() % 4 == 0) request.stopping.time_limit_seconds = 0.01 * (1 + random() % 30);
          if (request.session_id.empty() && random() % 3 == 0) {
            request.kind = RequestKind::kScore;
            request.stopping.time_limit_seconds.reset();
          }
          const std::string name = request.name;
          auto recorder = std::make_shared<Recorder>();
          auto id = harness.engine->Submit(request, recorder);
          if (!id.ok()) break;  // busy session or longer than the context
          harness.ids[name] = *id;
          recorders.push_back(recorder);
          break;
        }
        case 1:
          if (!harness.ids.empty() && random() % 3 == 0) {
            auto victim = std::next(harness.ids.begin(), random() % harness.ids.size());
            harness.engine->Cancel(victim->second, absl::CancelledError("gone"));
          }
          break;
        default:
          harness.clock.AdvanceNanos(random() % 10'000'000);
          harness.engine->RunOneStep();
      }
    }
    harness.RunAll();
    EXPECT_GT(recorders.size(), 10u);
    for (const auto& recorder : recorders) EXPECT_TRUE(recorder->finish);
    harness.ExpectClean();
  }
}

}  // namespace step_engine_batch_test
}  // namespace moed
