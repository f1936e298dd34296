// A model that can be predicted: its logits are a hash of the tokens that it finds in the pages of the sequence, where it wrote
// them itself. Pages mixed up, a recompute forgotten or a chunk out of place change what is generated. A second layer, with a
// window, must have the same tokens as far as the window goes, and a third one, with a state, all of them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/engine/step_engine.h"
#include "core/model/model.h"
#include "core/tokenizer/tokenizer.h"

namespace moed {

// Bytes are tokens 0..255; the letters a..h and the end of sequence are by far the likeliest.
inline constexpr int kVocabulary = 258;
inline constexpr int kPageTokens = 16;  // fewer than a daemon has, so that few tokens fill many
inline constexpr TokenId kEos{256};     // "<eos>", special
inline constexpr TokenId kOther{257};   // "<other>", special

void FakeLogits(std::span<const TokenId> history, std::span<float> logits);
const Tokenizer& ByteTokenizer();
std::vector<TokenId> Bytes(std::string_view text);

class FakeModel final : public Model {
 public:
  FakeModel(KvPool& kv, const ModelSpec& spec) : kv_(kv), spec_(spec) {}

  const ModelSpec& spec() const override { return spec_; }
  uint64_t trunk_bytes() const override { return 0; }
  // Two layers, as far as the watcher sees.
  void Forward(std::span<SequenceChunk> chunks, ExpertProvider& provider, LogitsSink sink, StepWatcher* watcher) override;
  void GateProbabilities(LayerId, std::span<const float>, std::span<float>) override {}

  std::function<void(std::span<SequenceChunk>)> on_forward;  // before anything else
  std::function<absl::Status(const SequenceChunk&)> fails;   // not OK: this chunk does
  std::function<void(std::span<const TokenId>, std::span<float>)> logits = FakeLogits;
  int max_step_tokens = 0;  // seen so far
  int computed_tokens = 0;

 private:
  std::vector<TokenId> History(const KvSequence& kv, int length) const;
  float& KeyOf(const KvSequence& kv, int position, LayerId layer) const;
  void Write(const KvSequence& kv, int position, float number) const;
  uint64_t& StateOf(const KvSequence& kv) const;

  KvPool& kv_;
  const ModelSpec spec_;
};

// Counts what it is told; hits of a sequence = tokens computed for it.
class NullProvider final : public ExpertProvider, private ActivationLender {
 public:
  ActivationLender* lender() override { return this; }
  void OnSequenceStart(SequenceId session) override;
  void OnSequenceEnd(SequenceId session) override;
  void OnSequencePause(SequenceId session) override;
  void OnToken(SequenceId session, TokenId) override {
    ++computed[session];
    paused.erase(session);
  }
  void OnGateInput(SequenceId, LayerId, std::span<const float>) override {}
  void OnTokenGateInput(SequenceId, LayerId, std::span<const float>) override {}
  bool masks_router() const override { return false; }
  void MaskRouter(LayerId, std::span<const float>, std::span<float>, TokenRouting&) override {}
  void Begin(const LayerRouting&) override {}
  std::optional<ReadyExpert> Next() override { return std::nullopt; }
  std::optional<ReadyExpert> NextReady() override { return std::nullopt; }
  SequenceCounters sequence_counters(SequenceId session) const override;

  int given_back = 0;  // how often it was told that nothing is lent any more
  int pauses = 0;
  std::set<SequenceId> live, ended, paused;
  std::map<SequenceId, uint64_t> computed;
  std::map<SequenceId, SequenceCounters> lost;  // beside the hits, what a test says

 private:
  absl::StatusOr<std::span<std::byte>> Lend(uint64_t bytes) override {
    given_back += bytes == 0;
    return std::span<std::byte>();
  }
};

// Writes down what it hears and checks the order of it.
class Recorder final : public RequestObserver {
 public:
  void OnStarted(int prompt_tokens, int cached_tokens) override;
  void OnTokens(TokenDelta delta) override;
  void OnFinish(const FinishInfo& info) override;

  std::vector<TokenId> tokens() const;

  bool started = false;
  int prompt_tokens = 0;
  int cached_tokens = 0;
  std::string text;
  std::vector<TokenInfo> infos;
  std::vector<std::string> pieces;  // text of each delta
  std::optional<FinishInfo> finish;
  std::function<void()> on_tokens = [] {};
  std::function<void()> on_finish = [] {};
};

struct HarnessOptions {
  StepEngineOptions engine{.max_context = 96,
                           .max_new_tokens = 64,
                           .max_running = 4,
                           .queue_capacity = 32,
                           .max_step_tokens = 16,
                           .max_kept_sessions = 8};
  int pages = 64;      // of kPageTokens
  int window = 0;      // of a second layer; 0: there is none
  bool state = false;  // of a layer behind those
  int slots = 1;
  std::vector<TokenId> eos{kEos};
  Trace* trace = nullptr;
  Fidelity fidelity;                                              // of requests that do not say
  std::function<std::optional<double>(int tokens)> cold_seconds;  // EngineParts
  std::function<void(const absl::Status&)> failed;                // likewise
};

struct Harness {
  explicit Harness(const HarnessOptions& options = {});

  std::shared_ptr<Recorder> Submit(EngineRequest request);  // expects that it is admitted
  absl::Status SubmitError(EngineRequest request);
  void RunAll();  // until nothing is left
  // What every test may ask at its end: no page and no sequence is left but those of kept sessions.
  void ExpectClean();

  FakeClock clock;
  std::unique_ptr<KvPool> kv;
  std::unique_ptr<FakeModel> model;
  NullProvider provider;
  std::unique_ptr<StepEngine> engine;
  std::map<std::string, RequestId> ids;  // by name
};

// A request with a name of its own: greedy, EOS ignored, `new_tokens` long.
EngineRequest GreedyRequest(std::string_view prompt, int new_tokens);

struct Expected {
  std::vector<TokenId> tokens;
  std::string text;
  FinishReason reason = FinishReason::kLength;
  int completion_tokens = 0;
};

// The same answer by a naive loop: no pages, no chunks, no batch. `history`: of the session. Greedy, seeded sampling and stop
// tokens, no stop strings.
Expected Reference(const EngineRequest& request, std::vector<TokenId> history = {}, int max_context = 96,
                   int max_new_tokens = 64);

void ExpectAnswer(const Recorder& recorder, const Expected& expected);

}  // namespace moed
