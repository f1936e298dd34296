#include "core/engine/batch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace moed {

void PrintTo(const PlannedChunk& chunk, std::ostream* out) { *out << chunk.sequence << ":" << chunk.tokens; }

namespace batch_plan_test {

PlanSequence Decodes(int held, int required) { return {true, true, 1, held, required}; }
PlanSequence Prefills(int pending, int pages) { return {true, false, pending, pages, pages}; }
PlanSequence Waits(int pending, int required, int held = 0) { return {false, false, pending, held, required}; }
PlanSequence Overtook(int held) {
  return {.running = true, .decoding = true, .pending_tokens = 1, .held_pages = held, .required_pages = held, .overtook = true};
}
PlanSequence GaveWay(int pending, int required) {
  return {.pending_tokens = pending, .required_pages = required, .gave_way = true};
}
PlanSequence Encodes(int source, int pages) { return {false, false, source, 0, pages, 0, true}; }

struct PlanCase {
  std::string name;
  std::vector<PlanSequence> sequences;
  PlanBudget budget;
  int running;
  std::vector<PlannedChunk> chunks;
  std::vector<int> overtaking = {};
};

const PlanCase kCases[] = {
    {"nothing", {}, {8, 4, 10}, 0, {}},
    {"a prompt in chunks", {Waits(20, 2)}, {8, 4, 10}, 1, {{0, 8}}},
    {"its rest", {Prefills(4, 2)}, {8, 4, 10}, 1, {{0, 4}}},
    {"decoding goes first", {Prefills(20, 2), Decodes(1, 1), Decodes(1, 1)}, {8, 4, 10}, 3, {{0, 6}, {1, 1}, {2, 1}}},
    {"a prompt beside decoding is held short", {Prefills(20, 2), Decodes(1, 1)}, {8, 4, 10, 5}, 2, {{0, 4}, {1, 1}}},
    {"prompts alone are not", {Prefills(20, 2)}, {8, 4, 10, 5}, 1, {{0, 8}}},
    {"nor where it would be, beyond a size of their own", {Prefills(20, 2)}, {8, 4, 10, 5, true, 6}, 1, {{0, 6}}},
    {"prompts in order of arrival", {Prefills(5, 1), Prefills(5, 1), Prefills(5, 1)}, {8, 4, 10}, 3, {{0, 5}, {1, 3}}},
    {"a short prompt does not wait for a long one", {Prefills(20, 2), Prefills(3, 1)}, {8, 4, 10}, 2, {{0, 5}, {1, 3}}},
    {"nor does a longer one, for half of the tokens", {Prefills(99, 9), Prefills(20, 2)}, {8, 4, 10}, 2, {{0, 4}, {1, 4}}},
    {"of the younger the shortest first",
     {Prefills(99, 9), Prefills(20, 2), Prefills(3, 1)},
     {8, 4, 10},
     3,
     {{0, 4}, {1, 1}, {2, 3}}},
    {"beside decoding too", {Prefills(99, 9), Decodes(1, 1), Prefills(3, 1)}, {16, 4, 10, 7}, 3, {{0, 3}, {1, 1}, {2, 3}}},
    {"one token goes to the oldest", {Prefills(99, 9), Prefills(3, 1)}, {1, 4, 10}, 2, {{0, 1}}},
    {"no more than max_running", {Decodes(1, 1), Waits(2, 1), Waits(2, 1)}, {8, 2, 10}, 2, {{0, 1}, {1, 2}}},
    {"growth takes a free page", {Decodes(1, 2)}, {8, 4, 1}, 1, {{0, 1}}},
    {"growth preempts the youngest", {Decodes(1, 2), Decodes(1, 1), Decodes(1, 1)}, {8, 4, 0}, 2, {{0, 1}, {1, 1}}},
    {"the youngest gives way to itself", {Decodes(1, 1), Decodes(1, 2)}, {8, 4, 0}, 1, {{0, 1}}},
    {"both must grow, one can", {Decodes(2, 3), Decodes(2, 3)}, {8, 4, 1}, 1, {{0, 1}}},
    {"freed pages serve several", {Decodes(1, 2), Decodes(1, 2), Prefills(9, 3)}, {8, 4, 0}, 2, {{0, 1}, {1, 1}}},
    {"no admission in a step with preemption", {Decodes(1, 2), Decodes(5, 5), Waits(1, 1)}, {8, 4, 0}, 1, {{0, 1}}},
    {"admission needs all pages and one for each that runs", {Decodes(1, 1), Waits(20, 2)}, {8, 4, 2}, 1, {{0, 1}}},
    {"just enough", {Decodes(1, 1), Waits(20, 2)}, {8, 4, 3}, 2, {{0, 1}, {1, 7}}},
    {"who fits beside the next one overtakes it",
     {Decodes(4, 4), Waits(50, 6), Waits(2, 1)},
     {8, 4, 5},
     2,
     {{0, 1}, {1, 2}},
     {2}},
    {"as far as it fits with them", {Decodes(4, 4), Waits(50, 6), Waits(2, 2), Waits(3, 1)}, {8, 4, 4}, 2, {{0, 1}, {1, 3}}, {3}},
    {"nobody overtakes who would be waited for", {Decodes(4, 4), Waits(50, 8), Waits(1, 1)}, {8, 4, 5}, 1, {{0, 1}}},
    {"nor beside those that overtook", {Decodes(4, 4), Overtook(3), Waits(50, 6), Waits(1, 1)}, {8, 4, 4}, 2, {{0, 1}, {1, 1}}},
    {"but where there is room",
     {Decodes(4, 4), Overtook(3), Waits(50, 6), Waits(1, 1)},
     {8, 4, 5},
     3,
     {{0, 1}, {1, 1}, {2, 1}},
     {3}},
    {"the last pages of those that run are theirs",
     {Decodes(5, 5), Decodes(5, 5), Waits(50, 6), Waits(1, 1)},
     {8, 4, 2},
     2,
     {{0, 1}, {1, 1}}},
    {"what a waiting session holds is its own", {Decodes(4, 4), Waits(50, 6, 5), Waits(1, 1)}, {8, 4, 5}, 1, {{0, 1}}},
    {"a place is kept as well", {Decodes(4, 4), Waits(50, 6), Waits(2, 1)}, {8, 2, 5}, 1, {{0, 1}}},
    {"who gave way does not overtake", {Decodes(4, 4), Waits(50, 6), GaveWay(2, 1)}, {8, 4, 5}, 1, {{0, 1}}},
    {"who overtook gives way first", {Decodes(4, 5), Overtook(3)}, {8, 4, 0}, 1, {{0, 1}}},
    {"nobody overtakes in a step with preemption",
     {Decodes(4, 5), Overtook(3), Waits(50, 6), Waits(1, 1)},
     {8, 4, 0},
     1,
     {{0, 1}}},
    {"the first runs with the last page", {Waits(50, 4)}, {8, 4, 4}, 1, {{0, 8}}},
    {"a session's own pages count", {Decodes(1, 1), Waits(3, 3, 2)}, {8, 4, 4}, 2, {{0, 1}, {1, 3}}},
    {"a waiting session's pages may be needed by its elders", {Decodes(1, 2), Waits(3, 3, 3)}, {8, 4, 3}, 1, {{0, 1}}},
    {"what it shares with those that run is not needed twice",
     {Decodes(5, 5), {false, false, 3, 5, 6, 5}},
     {8, 4, 2},
     2,
     {{0, 1}, {1, 3}}},
    {"nor given back", {Decodes(5, 6), {true, true, 1, 6, 6, 5}, {true, true, 1, 1, 1}}, {8, 4, 0}, 2, {{0, 1}, {1, 1}}},
    {"a source goes whole beside decoding",
     {Decodes(1, 1), Decodes(1, 1), Encodes(8, 1)},
     {8, 4, 10, 3},
     3,
     {{0, 1}, {1, 1}, {2, 8}}},
    {"sources as far as they fit", {Encodes(3, 1), Encodes(5, 1), Encodes(1, 1)}, {8, 4, 10}, 3, {{0, 3}, {1, 5}}},
    {"a younger source does not overtake", {Encodes(6, 1), Encodes(3, 1), Encodes(1, 1)}, {8, 4, 10}, 3, {{0, 6}}},
    {"sources leave prompts their tokens", {Prefills(20, 2), Encodes(8, 1)}, {8, 4, 10}, 2, {{0, 8}, {1, 8}}},
    {"what is whole goes beside decoding", {Decodes(1, 1), Encodes(7, 1)}, {8, 4, 10, 3, false}, 2, {{0, 1}, {1, 7}}},
    {"as far as it fits, before pieces",
     {Decodes(1, 1), Prefills(20, 2), Encodes(5, 1), Encodes(3, 1)},
     {8, 4, 10, 8, false},
     4,
     {{0, 1}, {1, 2}, {2, 5}}},
    {"nothing to compute", {Waits(0, 0), Waits(3, 1)}, {8, 4, 4}, 2, {{1, 3}}},
};

TEST(BatchPlanTest, Table) {
  for (const PlanCase& c : kCases) {
    const BatchPlan plan = PlanStep(c.sequences, c.budget);
    EXPECT_EQ(plan.running, c.running) << c.name;
    EXPECT_EQ(plan.chunks, c.chunks) << c.name;
    EXPECT_EQ(plan.overtaking, c.overtaking) << c.name;
  }
}

TEST(BatchPlanTest, InvariantsHoldForRandomSnapshots) {
  std::mt19937 random(17);
  int overtakings = 0;
  for (int round = 0; round < 20000; ++round) {
    PlanBudget budget;
    budget.max_running = 1 + random() % 6;
    budget.max_step_tokens = budget.max_running + random() % 8;
    budget.max_shared_tokens = budget.max_running + random() % 8;
    budget.max_prompt_tokens = 1 + random() % 12;
    const int total_pages = 4 + random() % 12;
    std::vector<PlanSequence> sequences(random() % 9);
    const int running = std::min<int>(random() % (budget.max_running + 1), sequences.size());
    int held_by_running = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      PlanSequence& s = sequences[i];
      s.running = static_cast<int>(i) < running;
      s.required_pages = 1 + random() % 4;
      s.held_pages = s.running ? std::min<int>(s.required_pages, total_pages - held_by_running) : 0;
      s.decoding = s.running && random() % 2 == 0;
      s.pending_tokens = s.decoding ? 1 : 1 + random() % 40;
      if (s.running) held_by_running += s.held_pages;
    }
    budget.available_pages = total_pages - held_by_running;
    for (int i = running; i-- > 0 && random() % 2 == 0;) sequences[i].overtook = true;
    const BatchPlan plan = PlanStep(sequences, budget);

    ASSERT_LE(plan.running, budget.max_running);
    ASSERT_GE(plan.running, sequences.empty() ? 0 : 1) << "someone always makes progress";
    if (!plan.overtaking.empty()) {
      const int first = plan.running - static_cast<int>(plan.overtaking.size());
      int beside = sequences[first].required_pages;  // pages that are taken when all that did not overtake have ended
      for (int i = 0; i < first; ++i) beside += sequences[i].overtook ? sequences[i].required_pages + 1 : 0;
      for (const int overtakes : plan.overtaking) beside += sequences[overtakes].required_pages + 1;
      ASSERT_LE(beside, total_pages) << "nobody waits for who overtook";
      ASSERT_GT(plan.overtaking.front(), first);
      ASSERT_TRUE(std::is_sorted(plan.overtaking.begin(), plan.overtaking.end()));
      ++overtakings;
    }
    // In their places.
    for (size_t i = 0; i < plan.overtaking.size(); ++i) {
      const auto place = sequences.begin() + plan.running - static_cast<std::ptrdiff_t>(plan.overtaking.size() - i);
      std::rotate(place, sequences.begin() + plan.overtaking[i], sequences.begin() + plan.overtaking[i] + 1);
    }
    int pages = 0, tokens = 0, last = -1;
    for (int i = 0; i < plan.running; ++i) pages += std::max(sequences[i].required_pages, sequences[i].held_pages);
    ASSERT_LE(pages, total_pages);
    std::vector<int> planned(sequences.size());
    for (const PlannedChunk& chunk : plan.chunks) {
      ASSERT_GT(chunk.sequence, last);
      last = chunk.sequence;
      ASSERT_LT(chunk.sequence, plan.running);
      ASSERT_GE(chunk.tokens, 1);
      ASSERT_LE(chunk.tokens, sequences[chunk.sequence].pending_tokens);
      planned[chunk.sequence] = chunk.tokens;
      tokens += chunk.tokens;
    }
    ASSERT_LE(tokens, budget.max_step_tokens);
    const bool shared = std::any_of(plan.chunks.begin(), plan.chunks.end(),
                                    [&](const PlannedChunk& chunk) { return sequences[chunk.sequence].decoding; });
    ASSERT_LE(tokens, shared ? budget.max_shared_tokens : budget.max_prompt_tokens);
    ASSERT_GE(tokens, sequences.empty() ? 0 : 1);
    for (int i = 0; i < plan.running; ++i) {
      ASSERT_TRUE(!sequences[i].decoding || planned[i] == 1) << "every decoding sequence, every step";
    }
  }
  EXPECT_GT(overtakings, 300);
}

}  // namespace batch_plan_test
}  // namespace moed
