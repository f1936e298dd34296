// A loaded model: resident trunk, experts through the provider, one Forward per step of the engine.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/base/fidelity.h"
#include "core/base/ids.h"
#include "core/base/trace.h"
#include "core/expert/provider.h"
#include "core/kernels/backend.h"
#include "core/model/embedding_stats.h"
#include "core/model/kv_pool.h"
#include "core/model/spec.h"
#include "core/store/description.h"

namespace moed {

class ReadBackend;
class StoreReader;

// Consecutive tokens of one sequence in one step: a piece of a prompt, or a token to decode and what may follow it. The first
// chunk of an encoder-decoder's sequence is its source, all of it; what follows are the decoder's tokens. A source has no logits.
// That of a prefix-LM's is its prompt, all of it.
struct SequenceChunk {
  SequenceId sequence;
  Phase phase = Phase::kDecode;
  std::span<const TokenId> tokens;  // >= 1
  KvSequence* kv = nullptr;  // holds positions [0, kv->length); room for tokens.size() more is reserved. Forward adds to length
  int first_logits = 0;      // logits are wanted for tokens [first_logits, tokens.size()); == size: none
  Fidelity fidelity;
  TokenId before{-1};  // at position kv->length - 1; -1: there is none
  // Out: choices of its tokens that an expert was full for, over all layers (EncoderShape::expert_capacity).
  int dropped = 0;
  // Out: its tokens' products with matrices of the trunk were those of halves, which Fidelity::FastMatmul allows.
  bool fast_matmul = false;
  // Out: DATA_LOSS etc. when an expert of one of its tokens could not be read, what a StepWatcher set, or, of all chunks, why the
  // backend failed. kv->length is then what it was; the slot is lost where the chunk overwrote what it has to have (CutBack).
  absl::Status status;
};

struct ModelOptions {
  int max_step_tokens = 0;  // most tokens of one Forward; of an encoder-decoder as many of sources and as many of the decoder
  int max_context = 0;
  int logits_rows = 0;  // rows of logits computed at a time, >= 1
  // The model has memory of its own for steps of up to so many tokens; for what larger ones need beside it the provider is asked
  // (ActivationLender). 0: for all.
  int own_step_tokens = 0;
  // There is memory for these forms of the experts' inputs; Model::ExpertInputs are enough.
  InputForms expert_inputs = kAllForms;
  // Steps of many tokens, all of sequences that allow it, multiply with matrices of the trunk in halves. The backend has opened
  // that (ComputeBackend::OpenFastMatmul).
  bool fast_matmul = false;
  // The embedding stays in the store, and its rows are read as tokens want them. For models with a head of its own.
  bool stored_embedding = false;
};

// Hears of a step, on the engine's thread: between its layers, and of what experts read.
class StepWatcher {
 public:
  virtual ~StepWatcher() = default;
  // `chunks` are Forward's. One whose status it sets to an error leaves the step as if an expert of it could not be read; what is
  // an error already it leaves alone.
  virtual void OnLayerDone(std::span<SequenceChunk> chunks) = 0;
  // Whether it wants to hear of steps of few tokens, too, which a device may compute without the host in their middle.
  virtual bool needs_layers() const { return true; }
  // Rows of an expert: what its first matrices read (rows, hidden) and what its last one does (rows, expert_ffn). In the
  // backend's memory, and computed once it is idle.
  virtual void OnExpert(LayerId, int32_t /*expert*/, const Activations& /*input*/, const Activations& /*inner*/) {}
};

// Wanted logits (vocabulary) of token `token` of chunk `chunk`, in order; writable, valid during the call.
using LogitsSink = absl::FunctionRef<void(int chunk, int token, std::span<float> logits)>;

// What a model is made of; outlives it.
struct ModelParts {
  const StoreReader& store;
  const ModelSpec& spec;
  ComputeBackend& backend;
  KvPool& kv;                    // in the backend's memory, as what the provider hands out
  Trace* trace = nullptr;        // null: none
  ReadBackend* trunk = nullptr;  // reads it while the model is loaded, and need not live longer; null: the store does
  ReadBackend* rows = nullptr;   // reads those of an embedding that stays in the store; not null then
  // Of the host's memory: computes what the provider hands out for it, which it does where this is not null. It is asked for
  // where LetsProcessorCompute and the backend's memory is not the host's alone.
  ComputeBackend* processor = nullptr;
};

// Engine thread only, except the const members.
class Model {
 public:
  virtual ~Model() = default;

  // Bytes that Load will hold beside the trunk (scratch), known before anything is allocated.
  static uint64_t ScratchBytes(const ModelSpec& spec, const ModelOptions& options, int threads);
  // What of the trunk is not in memory with an embedding that stays in the store, and what is held in its place, where the
  // trunk is and by the host. Nothing: the table is the head as well.
  struct StoredEmbeddingBytes {
    uint64_t left_out = 0;
    uint64_t working = 0;
    uint64_t host = 0;
  };
  static StoredEmbeddingBytes BytesOfStoredEmbedding(const StoreDescription& description, const ModelSpec& spec);
  // Those that the store's experts and shared experts read.
  static InputForms ExpertInputs(const StoreDescription& store);
  // Whether experts may be computed on a processor beside a device: their input is what the host is shown anyway, and everything
  // that they add lies in their records.
  static bool LetsProcessorCompute(const ModelSpec& spec);
  // What it asks the provider for at most. 0: nothing.
  static uint64_t LentBytes(const ModelSpec& spec, const ModelOptions& options);
  // Reads the trunk whole. Shapes are checked against the spec. The trunk and what a step needs are in the backend's memory.
  static absl::StatusOr<std::unique_ptr<Model>> Load(const ModelParts& parts, const ModelOptions& options);

  virtual const ModelSpec& spec() const = 0;
  virtual uint64_t trunk_bytes() const = 0;                      // in memory
  virtual EmbeddingStats embedding_stats() const { return {}; }  // any thread

  // One step: every chunk's tokens go through all layers; experts come from `provider`. The bits of a sequence's logits do not
  // depend on the other chunks, on how its tokens are cut into chunks, or on the order in which experts arrive. `watcher` may be
  // null.
  virtual void Forward(std::span<SequenceChunk> chunks, ExpertProvider& provider, LogitsSink sink,
                       StepWatcher* watcher = nullptr) = 0;

  // What the layer's own router makes of `hidden` (experts): probabilities, or for a router without them numbers from 0 to 1 in
  // the order of its choice (ComputeBackend::Rank). Waits for them (ComputeBackend::Fence); zeros where the backend fails, which
  // the step that it is asked for in then tells.
  virtual void GateProbabilities(LayerId layer, std::span<const float> hidden, std::span<float> probabilities) = 0;
};

}  // namespace moed
