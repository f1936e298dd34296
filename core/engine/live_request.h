// A request between admission and end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/ids.h"
#include "core/engine/answer.h"
#include "core/engine/drafts.h"
#include "core/engine/engine.h"
#include "core/engine/session_table.h"
#include "core/expert/provider.h"

namespace moed {

struct LiveRequest {
  RequestId id;
  EngineRequest request;  // its prompt has moved into the sequence
  std::shared_ptr<RequestObserver> observer;
  std::unique_ptr<Sequence> sequence;
  int prompt_tokens = 0;               // what the session held before included
  int whole_tokens = 0;                // of the prompt, which is computed in one step; 0: pieces do
  int source_tokens = 0;               // of those, of an encoder-decoder's, whose answer begins a text of its own
  int shared_tokens = 0;               // of the prompt, the first, that requests which begin with the same ones share whole
  int scored_from = 0;                 // of a prompt that is scored: position whose logits are the first that are wanted
  std::optional<Answer> answer;        // kGenerate
  int scored_tokens = 0;               // of the text, or of the answer's prompt: those whose log probability is there
  std::vector<float> prompt_logprobs;  // of a prompt that is scored
  std::vector<std::vector<std::pair<TokenId, float>>> prompt_top;  // likewise, with top_logprobs
  uint64_t seed = 0;
  size_t owner = 0;        // its tenant's number, which stays when the sequence is gone
  int charged_tokens = 0;  // of its prompt, to its tenant
  int computed_tokens = 0;

  bool running = false;
  bool overtook = false;  // it runs, and another one's turn was before it
  bool started = false;   // OnStarted was called
  bool judged = false;    // whether it can be done before its deadline
  int cached_tokens = 0;
  int prefix_tokens = 0;                   // of those, from the prefix cache or the source cache
  std::optional<uint64_t> prefix_version;  // of the cache, when they were looked for
  int last_checkpoint = 0;                 // position where it began, or of the last one that was kept since
  int next_checkpoint = 0;                 // position where one is to be kept
  uint64_t passing_checkpoint = 0;         // the last one, which the next one takes the place of; 0: none does
  bool awaits_source = false;              // it is computed in this step for another request
  bool asked_disk = false;                 // since it runs, whether the disk has what it would compute
  int preemptions = 0;
  int dropped = 0;  // see SequenceChunk
  uint64_t fast_matmul_tokens = 0;
  int lossy_cached_tokens = 0;       // the most that were there when it began to run, and had lost something
  SequenceCounters counters_before;  // of the sequence when this request started
  int64_t started_nanos = 0;
  int64_t first_token_nanos = 0;

  DraftTrust trust;

  // Of the current step, set while it computes.
  bool draft_found = false;           // there was one to compute
  int drafted = 0;                    // the last tokens of the sequence: nobody has chosen them yet
  int chosen = 0;                     // tokens of the answer
  TokenDelta delta;                   // of those
  std::optional<FinishReason> ended;  // by the last one of them
  absl::Status failure;
  bool overdue = false;  // its time limit passed between two layers

  // Tokens whose keys and values this request needs next. To score, the last token of the prompt need not be computed.
  int Goal() const { return static_cast<int>(sequence->tokens.size()) - (answer ? 0 : 1); }
  int Pending() const { return Goal() - sequence->kv.length; }
  // A prompt that is computed whole, before the tokens that follow it.
  bool BeginsWhole() const { return whole_tokens > 0 && sequence->kv.length == 0; }
  // What may be computed next.
  int PendingNow() const { return awaits_source ? 0 : BeginsWhole() ? whole_tokens : Pending(); }
  // Whether logits of its text, or of its answer's prompt, are wanted that have not come. Of a prompt they are kept once all are
  // there, whether or not it runs.
  bool ScoresPrompt() const { return !answer || (request.prompt_logprobs && scored_tokens < prompt_tokens - 1); }
  bool Decoding() const { return answer && answer->completion_tokens() > 0 && Pending() == 1; }
  bool Overdue(int64_t now_nanos) const;
};

RequestTimings TimingsOf(const LiveRequest& live, int completion_tokens, int64_t now_nanos);

// What OnFinish tells, with what is known of a prompt that was scored, which goes from the request. `now`: what the sequence's
// counters are at the end.
FinishInfo Summarize(LiveRequest& live, absl::Status status, FinishReason reason, const SequenceCounters& now, int64_t now_nanos);

}  // namespace moed
