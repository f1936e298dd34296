#include "core/engine/step_engine.h"

#include <algorithm>
#include <exception>
#include <random>
#include <span>
#include <utility>

#include "core/base/check.h"
#include "core/base/retry_after.h"
#include "core/base/status.h"
#include "core/engine/request_check.h"

namespace moed {
namespace {

constexpr absl::Duration kIdleTurn = absl::Seconds(1);  // the heartbeat of an idle engine

absl::Status CheckAtLeast(std::string_view name, int value, int least) {
  if (value >= least) return absl::OkStatus();
  return InvalidArgument(name, " is ", value, ", at least ", least, " is needed");
}

absl::Status CheckOptions(const StepEngineOptions& options, const ModelSpec& spec, const KvPool& kv) {
  MOED_RETURN_IF_ERROR(CheckAtLeast("max_context", options.max_context, spec.encoder ? 3 : 2));
  if (options.max_context > spec.max_positions) {
    return InvalidArgument("max_context is ", options.max_context, ", the model knows ", spec.max_positions, " positions");
  }
  MOED_RETURN_IF_ERROR(CheckAtLeast("max_new_tokens", options.max_new_tokens.value_or(1), 1));
  MOED_RETURN_IF_ERROR(CheckAtLeast("max_running", options.max_running, 1));
  MOED_RETURN_IF_ERROR(CheckAtLeast("queue_capacity", options.queue_capacity, 0));
  MOED_RETURN_IF_ERROR(CheckAtLeast("max_step_tokens", options.max_step_tokens, options.max_running));
  if (options.max_request_seconds && !(*options.max_request_seconds > 0)) {
    return InvalidArgument("max_request_seconds is ", *options.max_request_seconds, ", more than 0 is needed");
  }
  MOED_RETURN_IF_ERROR(CheckAtLeast("max_kept_sessions", options.max_kept_sessions, 0));
  MOED_RETURN_IF_ERROR(
      CheckAtLeast("pages of keys and values", kv.pages(), KvPool::PagesFor(options.max_context, kv.page_tokens())));
  for (TokenId token : spec.eos) {
    if (token.value() < 0 || token.value() >= spec.vocabulary) {
      return InvalidArgument("end of sequence token ", token.value(), " is not in the vocabulary [0, ", spec.vocabulary - 1, "]");
    }
  }
  return absl::OkStatus();
}

// Behind a source the context has room for the token that the decoder begins with, and for one of the answer. A prompt with a
// prefix goes beside a token of each other request.
int WholePromptTokens(const StepEngineOptions& options, const ModelSpec& spec) {
  if (spec.encoder) return std::min(options.max_step_tokens, options.max_context - 2);
  return spec.prefix ? std::min(options.max_step_tokens - options.max_running + 1, options.max_context - 1) : 0;
}

// Of a prompt behind which is the token that a decoder begins with. Of a prefix-LM's, whose experts may be full of it, nothing:
// what an expert has room for behind the prefix depends on the prefix.
int SharedTokens(const ModelSpec& spec, std::span<const TokenId> prompt) {
  if (spec.encoder) return static_cast<int>(prompt.size()) - 1;
  if (!spec.prefix || prompt.size() > static_cast<size_t>(spec.prefix->expert_capacity)) return 0;
  const auto separator = std::ranges::find(prompt, TokenId(spec.prefix->separator));
  return separator == prompt.end() ? 0 : static_cast<int>(separator - prompt.begin());
}

// Where sequences need slots no more run than there are.
int RunningAtOnce(const StepEngineOptions& options, const KvPool& kv) {
  return kv.slots() > 0 ? std::min(options.max_running, kv.slots()) : options.max_running;
}

uint64_t RandomSeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepEngine>> StepEngine::Create(const StepEngineOptions& options, const EngineParts& parts) {
  MOED_RETURN_IF_ERROR(CheckOptions(options, parts.model.spec(), parts.kv));
  return std::unique_ptr<StepEngine>(new StepEngine(options, parts));
}

uint64_t StepEngine::MemoryBytes(const StepEngineOptions& options, int vocabulary) {
  // Token vectors grow by doubling; a prompt to score is accompanied by its log probabilities, a session by what a whole prompt
  // took the place of.
  const uint64_t sequence_bytes = uint64_t{3} * options.max_context * sizeof(TokenId);
  const RequestLimits& request = options.request;
  const uint64_t stopping_bytes = request.stop_strings * (uint64_t{2} * request.stop_string_bytes + sizeof(std::string)) +
                                  uint64_t{8} * request.logit_biases + uint64_t{8} * request.stop_tokens;
  const uint64_t live = static_cast<uint64_t>(options.max_running) + options.queue_capacity;
  const uint64_t step_bytes = options.max_running * (sizeof(SequenceChunk) + 2 * sizeof(PlanSequence) + sizeof(PlannedChunk));
  return live * (sizeof(LiveRequest) + sequence_bytes + 2 * stopping_bytes) + options.max_kept_sessions * sequence_bytes +
         step_bytes + Sampler::ScratchBytes(vocabulary);
}

StepEngine::StepEngine(const StepEngineOptions& options, const EngineParts& parts)
    : parts_(parts),
      limits_{options.max_context,
              options.max_new_tokens,
              options.max_running,
              options.queue_capacity,
              parts.model.spec().vocabulary,
              options.request,
              WholePromptTokens(options, parts.model.spec()),
              parts.model.spec().encoder.has_value(),
              options.fast_matmul},
      max_request_seconds_(options.max_request_seconds),
      intake_(RunningAtOnce(options, parts.kv), options.max_running + options.queue_capacity, options.max_kept_sessions),
      loop_(parts,
            {.max_running = RunningAtOnce(options, parts.kv),
             .max_step_tokens = options.max_step_tokens,
             .usual_step_tokens = options.usual_step_tokens,
             .logits_rows = options.logits_rows,
             .prefix_cache = options.prefix_cache,
             .prompt_lookup = options.prompt_lookup},
            intake_) {
  if (parts_.spill) parts_.spill->SetWaker([this] { intake_.Wake(); });
}

StepEngine::~StepEngine() {
  if (parts_.spill) parts_.spill->SetWaker(nullptr);
  Stop(absl::UnavailableError("the engine has stopped"));
}

void StepEngine::Start() {
  MOED_CHECK(!thread_.joinable());
  thread_ = std::thread([this] { Loop(); });
}

void StepEngine::Loop() {
  absl::Status failure;
  try {
    while (!intake_.stop_reason()) {
      if (!loop_.Turn()) intake_.WaitForWork(kIdleTurn);
    }
  } catch (const std::exception& error) {  // out of memory: what a step left half done is not gone on with
    failure = Internal("the engine failed: ", error.what());
    intake_.Stop(failure);
  }
  loop_.EndAll(*intake_.stop_reason());
  if (!failure.ok() && parts_.failed) parts_.failed(failure);
}

absl::StatusOr<RequestId> StepEngine::Submit(EngineRequest request, std::shared_ptr<RequestObserver> observer) {
  MOED_RETURN_IF_ERROR(CheckRequest(request, limits_));
  if (request.arrival_nanos == 0) request.arrival_nanos = parts_.clock.NowNanos();
  if (!request.sampling.seed) request.sampling.seed = RandomSeed();
  if (max_request_seconds_) {
    auto& limit = request.stopping.time_limit_seconds;
    limit = std::min(limit.value_or(*max_request_seconds_), *max_request_seconds_);
  }
  if (const auto& encoder = parts_.model.spec().encoder) request.prompt.push_back(TokenId(encoder->start));
  request.prompt.insert(request.prompt.end(), request.target.begin(), request.target.end());
  auto id = intake_.Submit(request, limits_, [&](RequestId live_id, std::unique_ptr<Sequence>& sequence) {
    return MakeLive(live_id, std::move(request), std::move(observer), sequence);
  });
  if (!absl::IsResourceExhausted(id.status()) || RetryAfterOf(id.status())) return id;
  const double seconds_per_end = loop_.Stats().seconds_per_end;
  return seconds_per_end > 0 ? RetryAfter(id.status(), seconds_per_end) : id.status();
}

QueueEstimate StepEngine::EstimateQueue(const std::string& tenant, Priority priority, int prompt_tokens) const {
  const Intake::Standing standing = intake_.StandingOf(tenant, priority);
  QueueEstimate estimate{.position = standing.position};
  const double seconds_per_end = loop_.Stats().seconds_per_end;
  if (!standing.waits) {
    estimate.wait_seconds = 0;
  } else if (seconds_per_end > 0) {
    estimate.wait_seconds = (standing.position + 1) * seconds_per_end;
  }
  estimate.prefill_seconds = loop_.PrefillSeconds(prompt_tokens);
  return estimate;
}

std::unique_ptr<LiveRequest> StepEngine::MakeLive(RequestId id, EngineRequest request, std::shared_ptr<RequestObserver> observer,
                                                  std::unique_ptr<Sequence>& sequence) const {
  auto live = std::make_unique<LiveRequest>();
  live->id = id;
  live->seed = *request.sampling.seed;
  request.prompt = std::vector<TokenId>();
  // The decoder's first token included.
  const int given = static_cast<int>(sequence->tokens.size() - std::exchange(request.target, {}).size());
  live->source_tokens = parts_.model.spec().encoder ? given - 1 : 0;
  live->whole_tokens = parts_.model.spec().prefix ? given : live->source_tokens;
  live->prompt_tokens = live->source_tokens > 0 ? live->source_tokens : given;
  live->shared_tokens = SharedTokens(parts_.model.spec(), std::span(sequence->tokens).first(static_cast<size_t>(given)));
  live->scored_from = live->whole_tokens > 0 ? given - 1 : 0;
  if (request.kind == RequestKind::kGenerate) {
    AnswerLimits limits;
    limits.eos = parts_.model.spec().eos;
    limits.max_new_tokens = limits_.MostNewTokens(request.stopping.max_new_tokens, given);
    limits.room = limits_.max_context - given;
    limits.continues = live->source_tokens == 0 && std::any_of(sequence->tokens.begin(), sequence->tokens.end(),
                                                               [&](TokenId token) { return !parts_.tokenizer.IsSpecial(token); });
    live->answer.emplace(parts_.tokenizer, request, limits);
  }
  live->sequence = std::move(sequence);
  live->request = std::move(request);
  live->observer = std::move(observer);
  return live;
}

void StepEngine::Drain(absl::Status refusal) { intake_.Close(std::move(refusal)); }

void StepEngine::Stop(absl::Status reason) {
  intake_.Stop(std::move(reason));
  absl::MutexLock lock(&stop_mutex_);
  if (stopped_) return;
  stopped_ = true;
  if (!thread_.joinable()) return loop_.EndAll(*intake_.stop_reason());
  thread_.join();
}

EngineStats StepEngine::Stats() const {
  EngineStats stats = loop_.Stats();
  stats.waiting = std::max(0, intake_.live() - stats.running);
  stats.sessions = intake_.sessions();
  stats.embedding = parts_.model.embedding_stats();
  return stats;
}

}  // namespace moed
