// Which tokens of which sequences go into the next step. A pure function of a snapshot.
//
// Live requests are listed in the order of their turns (turns.h) and those that run are the first ones of the list: the next one
// is admitted, those behind it where it lacks pages and they do not (Overtaking below), and only the last one ever gives way.
// Pages for all known tokens of a sequence are taken at admission; a decoding sequence grows.
#pragma once

#include <climits>
#include <span>
#include <vector>

namespace moed {

struct PlanSequence {
  bool running = false;    // true for a prefix of the list
  bool decoding = false;   // one token to compute, and it is of the answer
  int pending_tokens = 0;  // known, not computed yet
  int held_pages = 0;
  int required_pages = 0;  // for all known tokens
  int shared_pages = 0;    // of those it holds, that other running sequences hold, too
  bool whole = false;      // its pending tokens are computed in one step
  int tenant = 0;          // whose it is; the smaller number had less until now
  int weight = 1;          // of its tenant
  bool overtook = false;   // runs, and another one's turn was before it
  bool gave_way = false;   // has lost its pages once
};

struct PlanBudget {
  int max_step_tokens = 0;  // >= max_running, so that whoever prefills beside the others' decoding gets a token at least
  int max_running = 0;
  // Free, or held only by sequences that do not run (those give them back without loss of work in progress).
  int available_pages = 0;
  // Most tokens of a step in which somebody decodes, who waits for all of it; >= max_running.
  int max_shared_tokens = INT_MAX;
  // What is computed whole are sources of an encoder, which has a step of max_step_tokens to itself beside what else there is.
  // Otherwise each is at most max_step_tokens less a token for every other sequence.
  bool whole_apart = true;
  int max_prompt_tokens = INT_MAX;  // of a step with pieces of prompts alone; >= 1
};

struct PlannedChunk {
  int sequence = 0;  // index in the list with those that overtake in their places
  int tokens = 0;    // >= 1
  friend bool operator==(const PlannedChunk&, const PlannedChunk&) = default;
};

// The first `running` run after this plan: those of them that did not are admitted, those beyond that did are preempted. Those
// that overtake are moved behind the others of these, in their order.
struct BatchPlan {
  int running = 0;
  std::vector<int> overtaking;       // indices in the snapshot, ascending
  std::vector<PlannedChunk> chunks;  // ascending by sequence
};

// What is computed whole comes in the list's order, as far as it fits: into a step of its own beside this one, or into what the
// decoding sequences leave of this one.
// Every running sequence that decodes gets its token. What is left of the step is shared by the tenants that have prompts, by
// their weights; what one does not need the others have. Of a tenant's tokens half may go to prompts that have less to compute
// than the oldest one, the shortest first, so that a short prompt does not wait for a long one; the rest goes to all in order of
// arrival.
// When growth lacks pages the last running sequence gives way (perhaps the growing one itself, never the first). Admission is
// in the list's order, needs all pages of the known tokens and leaves one page for each that already runs; none in a step
// with preemption. The first sequence always runs: the caller sees to it that all pages together hold any one sequence.
//
// Overtaking: the first that lacks pages waits for those that run to end. Who is behind it runs meanwhile in pages that neither
// those that run nor those that wait hold, and without which the first has all that it lacks once those have ended: it does not
// wait for who has overtaken, but where their answers grow by more than a page each, and then nobody else overtakes. Who
// overtakes is the last to keep its pages, and who has lost them once does not overtake.
BatchPlan PlanStep(std::span<const PlanSequence> sequences, const PlanBudget& budget);

}  // namespace moed
