// The engine as servers see it: requests in, tokens out. One step loop; nothing here blocks its caller.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/fidelity.h"
#include "core/base/ids.h"
#include "core/base/tenant_limits.h"
#include "core/engine/request_limits.h"
#include "core/model/embedding_stats.h"

namespace moed {

namespace grammar {
class Matcher;
}

struct SamplingParams {
  float temperature = 1;
  int top_k = 0;  // 0 = all
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  std::optional<uint64_t> seed;
  std::vector<std::pair<TokenId, float>> logit_bias;
};

struct StoppingParams {
  std::optional<int> max_new_tokens;
  int min_new_tokens = 0;
  std::vector<std::string> stop_strings;
  std::vector<TokenId> stop_tokens;
  bool include_stop_string = false;
  bool ignore_eos = false;
  std::optional<double> time_limit_seconds;
};

enum class RequestKind : uint8_t { kGenerate, kScore };

// Beside the same tenant's other requests.
enum class Priority : uint8_t { kHigh, kNormal, kLow };
inline constexpr int kPriorities = 3;

struct EngineRequest {
  std::string name;            // the client's request_id; unique among the live requests
  std::string tenant;          // whose it is; "" = nobody's in particular. What one's prompts computed no other one begins with
  TenantLimits tenant_limits;  // of its tenant, from this request on; of nobody in particular they are the default ones
  Priority priority = Priority::kNormal;
  RequestKind kind = RequestKind::kGenerate;
  std::vector<TokenId> prompt;     // >= 1 token; with a session those that follow its own, unless whole_prompt
  std::vector<TokenId> target;     // kScore of an encoder-decoder or a prefix-LM: what is scored given the prompt, >= 1 token
  std::string session_id;          // "" = none; kGenerate only. Of a tenant "TENANT/ID"
  bool whole_prompt = false;       // the prompt is all that the session shall hold: what both begin with is not computed again
  bool continues_session = false;  // the prompt was made to follow a session's tokens: ABORTED when that session is gone
  bool must_exist = false;         // NOT_FOUND where the session is not kept
  std::optional<int> expected_tokens;  // FAILED_PRECONDITION where the session holds another number; 0 where it is not kept
  SamplingParams sampling;
  StoppingParams stopping;
  bool logprobs = false;
  int top_logprobs = 0;
  bool prompt_logprobs =
      false;  // kGenerate: of the prompt's tokens as well. Not of a session, of a prompt that is computed whole
  bool skip_special_tokens = true;
  std::shared_ptr<grammar::Matcher> format;  // kGenerate: what the answer must be, at its begin; null = anything
  std::optional<Fidelity> fidelity;          // absent: what the daemon's preset does
  int64_t arrival_nanos = 0;                 // Clock time when the call came in, before tokenisation; 0 = now
  int64_t deadline_nanos = 0;                // Clock time when nobody waits for it any more; 0 = never
};

struct TokenInfo {
  TokenId token;
  float logprob = 0;                           // of the model's own distribution; set when asked for
  std::vector<std::pair<TokenId, float>> top;  // alternatives, best first
};

struct TokenDelta {
  std::string text;  // whole UTF-8
  std::vector<TokenInfo> tokens;
};

enum class FinishReason : uint8_t { kStop, kStopString, kLength, kTimeLimit, kContext };

struct RequestTimings {
  double queue_seconds = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  double ttft_seconds = 0;
  double duration_seconds = 0;  // arrival to end
  double tpot_seconds = 0;      // 0 below two tokens
};

// Of a request that has ended, small whatever was asked for.
struct FinishFigures {
  absl::Status status;  // OK: `reason` holds. CANCELLED, DATA_LOSS, UNAVAILABLE (engine stopped), ...
  FinishReason reason = FinishReason::kStop;
  std::string stop_string;
  TokenId stop_token;     // kStop: counted in completion_tokens, but neither its id nor its text was in a TokenDelta
  int prompt_tokens = 0;  // what the session held before included
  int cached_tokens = 0;  // of those, not computed since keys and values were there
  int completion_tokens = 0;
  int session_tokens = 0;  // that the session holds after an answer; 0 without one, or where none is kept
  uint64_t seed = 0;
  RequestTimings timings;
  uint64_t expert_hits = 0;
  uint64_t expert_misses = 0;
  uint64_t bytes_read = 0;
  double stall_seconds = 0;
  int preemptions = 0;
  // Experts below the reference precision and left out, once for each layer of a step; choices of tokens that the router's mask
  // took away; and the share of its gate mass that a token lost to all three, on average over tokens and layers.
  uint64_t experts_lowered = 0;
  uint64_t experts_skipped = 0;
  uint64_t experts_masked = 0;
  double gate_mass_lost = 0;
  uint64_t choices_dropped = 0;     // of a source's tokens, whose expert had no room left
  uint64_t fast_matmul_tokens = 0;  // computed by products of halves
  // Taken over with keys and values that had lost something when they were computed, whether for it or for others before.
  int lossy_cached_tokens = 0;
};

struct FinishInfo : FinishFigures {
  std::vector<float> prompt_logprobs;  // kScore: one for each token of the target, or where none is due of the prompt but the
                                       // first; where they were asked for likewise
  std::vector<std::vector<std::pair<TokenId, float>>> prompt_top;  // beside them with top_logprobs: alternatives, best first
};

// A request whose first token cannot come before its deadline, by what was measured, ends before it runs: DEADLINE_EXCEEDED, or
// RESOURCE_EXHAUSTED where it could if nobody were before it.
//
// Called on the engine's thread in this order: OnStarted once, OnTokens any number of times, OnFinish exactly once (also without
// the others). Must not block and must not call the engine back, Cancel aside.
class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  virtual void OnStarted(int prompt_tokens, int cached_tokens) = 0;  // prefill begins
  virtual void OnTokens(TokenDelta delta) = 0;
  virtual void OnFinish(const FinishInfo& finish) = 0;
};

// What admission and sizes are; constant.
struct EngineLimits {
  int max_context = 0;
  std::optional<int> max_new_tokens;  // most a request may ask for; absent: any number
  int max_running = 0;                // run at once
  int queue_capacity = 0;             // wait at most
  int vocabulary = 0;
  RequestLimits request;
  // Of an encoder-decoder, whose prompt is a source, and of a prefix-LM: a prompt is computed in one step, and has at most so
  // many tokens. Requests that score need a target, those with a session are refused. 0: prompts are computed in pieces.
  int whole_prompt_tokens = 0;
  bool encodes = false;      // an encoder-decoder
  bool fast_matmul = false;  // requests may ask for Fidelity::FastMatmul

  // Most that an answer to `prompt_tokens` can have, whatever was asked for: what the context leaves ends it.
  int MostNewTokens(std::optional<int> asked, int prompt_tokens) const {
    return std::min(asked.value_or(max_new_tokens.value_or(max_context)), max_context - prompt_tokens);
  }
};

// A tenant as it is told of. Counts are since the start.
struct TenantInfo {
  std::string name;
  TenantLimits limits;
  int running = 0;
  int waiting = 0;
  uint64_t refused = 0;        // requests, by the tenant's limits or since the queue was full
  uint64_t prompt_tokens = 0;  // of requests that ran and have ended
  uint64_t generated_tokens = 0;
};

// What a request of a tenant would meet that came in now. Absent: nothing was measured that would tell.
struct QueueEstimate {
  int position = 0;                       // requests that run before it
  std::optional<double> wait_seconds;     // until it runs
  std::optional<double> prefill_seconds;  // from then on to its first token, if prompts go as fast as they ever did
};

// A conversation as it is told of.
struct SessionInfo {
  std::string name;
  bool busy = false;       // it is being answered; the rest is not known then
  int tokens = 0;          // that it holds
  int computed = 0;        // of which keys and values are there
  int on_disk = 0;         // of which keys and values are on disk, whether or not they are there, too (kv_spill.h)
  int64_t used_nanos = 0;  // Clock time when its last answer ended
};

// Keys and values of idle sessions on disk (kv_spill.h).
struct KvSpillStats {
  uint64_t budget = 0;         // bytes of disk; 0: there are none
  uint64_t on_disk_bytes = 0;  // in use
  uint64_t written_bytes = 0;
  uint64_t read_bytes = 0;
  double write_seconds = 0;
  double read_seconds = 0;
  uint64_t restored_tokens = 0;  // whose keys and values came back
  uint64_t lost_tokens = 0;      // of idle sessions that lost theirs, and did not have them on disk any more or not yet
  uint64_t damaged = 0;          // blocks that could not be read, or were not what was written
  bool ended = false;            // a write failed: nothing more is written
};

struct EngineStats {
  int running = 0;
  int waiting = 0;
  int sessions = 0;  // kept conversations
  uint64_t steps = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t recomputed_tokens = 0;  // once more, since keys and values had been dropped
  uint64_t generated_tokens = 0;
  uint64_t fast_matmul_tokens = 0;
  uint64_t preemptions = 0;
  // Tokens of prompts that were looked for in the prefix cache, and of those the ones that were there.
  uint64_t prefix_queries = 0;
  uint64_t prefix_hits = 0;
  // Tokens that were computed ahead of their choice since the text repeats itself, and of those the ones that were chosen.
  uint64_t drafted_tokens = 0;
  uint64_t accepted_draft_tokens = 0;
  int kv_pages = 0;
  int kv_pages_used = 0;
  int kv_pages_remembered = 0;  // of those that are not used: the prefix cache
  int checkpoints = 0;          // states and windows that are kept for prompts that begin like theirs
  KvSpillStats spill;
  EmbeddingStats embedding;
  int64_t heartbeat_nanos = 0;  // Clock time of the loop's last turn (idle turns count)
  double seconds_per_end = 0;   // between the ends of two requests while all are computed at the measured rate; 0: not measured
};

// Thread-safe. The real one is StepEngine; tests have one that answers from a script.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const EngineLimits& limits() const = 0;

  // Admission. Errors, at once, and then the observer is never called:
  //   INVALID_ARGUMENT    a value out of range (names it), a prompt longer than the context, a token outside the vocabulary
  //   ABORTED             the session is busy (or gone: continues_session);  ALREADY_EXISTS  a live request has this name
  //   NOT_FOUND, FAILED_PRECONDITION  the session is not what must_exist and expected_tokens say
  //   FAILED_PRECONDITION  a fidelity of fast-matmul where there is none
  //   RESOURCE_EXHAUSTED  the queue is full, or the tenant has what it may have; with RetryAfterOf where that can be told
  //   UNAVAILABLE     draining or stopped
  virtual absl::StatusOr<RequestId> Submit(EngineRequest request, std::shared_ptr<RequestObserver> observer) = 0;
  // The observer gets OnFinish with `status` soon. False when there is no such live request.
  virtual bool Cancel(RequestId id, absl::Status status) = 0;
  virtual std::optional<RequestId> FindRequest(const std::string& name) const = 0;
  // Whether a request with this session_id would continue a conversation (kept, or being answered).
  virtual bool HasSession(const std::string& session_id) const = 0;
  // Forgets it. NOT_FOUND where it is not kept, ABORTED while it is being answered.
  virtual absl::Status DeleteSession(const std::string& session_id) = 0;
  // Those that are being answered, then the others, most recently used first; at most `most`.
  virtual std::vector<SessionInfo> ListSessions(size_t most) const = 0;

  // Of a prompt with so many tokens, of which none are known here.
  virtual QueueEstimate EstimateQueue(const std::string& tenant, Priority priority, int prompt_tokens) const = 0;
  // Those that have been here, by name.
  virtual std::vector<TenantInfo> ListTenants() const = 0;
  // Runs `task` once on the engine's thread between two steps, soon: at most a step later. It must not call the engine back. What
  // still waits when the engine stops is run then. UNAVAILABLE once it has stopped: the task is never run.
  virtual absl::Status BetweenSteps(std::function<void()> task) = 0;

  virtual void Drain(absl::Status refusal) = 0;  // new requests fail with it; those here go on
  virtual bool Idle() const = 0;                 // nothing running or waiting, every OnFinish returned
  virtual void Stop(absl::Status reason) = 0;    // ends every request with `reason`, then the loop; idempotent; blocks until done
  virtual EngineStats Stats() const = 0;
};

}  // namespace moed
