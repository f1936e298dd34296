// Everything a step needs beside weights and KV, carved once from one buffer.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/buffer.h"
#include "core/expert/routing.h"
#include "core/kernels/backend.h"
#include "core/model/batch.h"
#include "core/model/model.h"
#include "core/model/spec.h"

namespace moed {

// Rows of a block, and of several experts that are computed together.
inline constexpr int kBlockRows = 64;
// Of a block where products are those of halves: what a matrix's own halves cost is shared by as many.
inline constexpr int kHalfBlockRows = 512;
inline constexpr int kLeastHalfRows = 32;  // of a step
inline constexpr int kGroupRows = 16;

// A step may hold many tokens (each expert is read once for all of them), so only what has to live from one end of a layer to the
// other has a row for each token; the rest is worked off in blocks of rows.
// Shapes: tokens = most tokens of a step, rows = those of a block, wide = rows, or kGroupRows where that is more, ffn = the
// widest of the model's feed-forward blocks.
struct TokenRows {
  std::span<float> x;                  // (tokens, hidden): the residual stream
  std::span<float> layer_input;        // (tokens, hidden): x before a layer whose blocks are parallel
  std::span<float> shared;             // (tokens, hidden): the shared expert's output, or a prefix-LM's bypass
  std::span<float> slots;              // (tokens * top_k, hidden): outputs of the chosen experts, in the order of expert_slots
  std::span<float> normed;             // (tokens, hidden): the first of `slots`, whose experts write when the norm was read
  std::span<float> normed_on_host;     // the same for the host; a copy of them, where its memory is not the backend's
  std::span<float> router;             // (tokens, experts): logits, then scores
  std::span<float> masked;             // (tokens, experts): the same with the mask, where there is one
  std::span<float> shared_gate;        // (tokens): logits
  std::span<std::byte> input_storage;  // a layer's prepared input of the experts, all rows
};

// Heads of latent attention that are multiplied together.
inline constexpr int kLatentHeads = 16;

// What latent attention has in place of k and v. Empty where a model has none.
struct LatentRows {
  std::span<float> q_a;               // (rows, q_rank)
  std::span<float> latents;           // (rows, kv_rank)
  std::span<float> rotated;           // (rows, rotary_dims): keys
  std::span<float> query;             // (rows, heads, kv_rank): queries, then sums of latents
  std::span<std::byte> head_storage;  // prepared rows of kLatentHeads heads
};

// What a processor needs of its own to compute experts beside a device; in shared memory. tokens = kMostTokensOfProcessor or
// fewer.
struct ProcessorRows {
  std::span<float> slots;              // (tokens * top_k, hidden)
  std::span<std::byte> input_storage;  // prepared input of all tokens
  std::span<float> gate;               // (wide, expert_ffn)
  std::span<float> up;                 // (wide, expert_ffn)
  std::span<std::byte> gathered_storage;
  std::span<std::byte> inner_storage;
};

// The rows of each token are those of a step of ModelOptions::own_step_tokens, or lent for a larger one (LentBytes).
struct Scratch : TokenRows {
  int block_rows = 0;

  std::span<float> logits;           // (logits rows, vocabulary)
  std::span<float> uncapped_logits;  // the same before they are capped, where they are and the host's memory is not the backend's
  std::span<float> scores;           // attention

  std::span<float> projected;  // (rows, hidden): what is normed before the residual stream gets it
  std::span<float> q;          // (rows, heads, head_dim), of the widest layer
  std::span<float> k;          // (rows, kv_heads, head_dim), of the widest layer
  std::span<float> v;          // as k
  LatentRows latent;
  std::span<float> encoder_bias;    // (heads, spec.encoder->distances()): PositionBias::table
  std::span<float> decoder_bias;    // the same
  std::span<float> attended;        // (rows, heads, spec.ValueDim()) or (rows, spec.recurrence().output_width), whichever is more
  std::span<float> attention_gate;  // as attended
  // Of recurrent layers.
  std::span<float> mixed;         // (rows, spec.recurrence().convolved_width): queries, keys and values
  std::span<float> convolved;     // the same
  std::span<float> decay;         // (rows, spec.recurrence().decays)
  std::span<float> rate;          // (rows, spec.recurrence().heads)
  std::span<float> gate_ranks;    // (2, rows, gate_rank): what a Gated DeltaNet's decays and gates are made of
  std::span<float> unit;          // (key_dim): the weight with which an RMS norm makes the length of queries and keys 1
  std::span<float> unit_on_host;  // the same
  std::span<float> gate;          // (wide, ffn)
  std::span<float> up;            // (wide, ffn)

  std::span<std::byte> block_storage;  // prepared rows of `normed`: of a block, or those whose logits are computed
  std::span<std::byte>
      gathered_storage;                // of a layer's prepared input, the rows of experts whose tokens do not follow each other
  std::span<std::byte> inner_storage;  // prepared inputs of o and of down, one after the other
  std::span<std::byte> halves;         // of products that need not be exact; empty without ModelOptions::fast_matmul
  ProcessorRows of_processor;          // empty where memory is unified or Model::LetsProcessorCompute does not hold
  // For gate probabilities that are asked for in the middle of a step.
  std::span<float> gate_input;        // (hidden)
  std::span<float> gate_scores;       // (experts)
  std::span<std::byte> gate_storage;  // one prepared row

  std::span<std::byte*> kv_pages;
  std::span<KvRun> kv_runs;        // (rows)
  std::span<StateRun> state_runs;  // (rows)

  std::span<ExpertChoice> choices;           // (tokens, top_k)
  std::span<ExpertChoice> unmasked_choices;  // (tokens, top_k)
  std::span<ExpertChoice> whole_choices;  // (layers with experts, kGroupRows): those of a step that is not waited for in between
  std::span<TokenRouting> routing;        // (tokens)
  std::span<int32_t> expert_begin;        // (experts + 1): where the slots of each expert begin in expert_slots
  std::span<int32_t> expert_slots;        // (tokens * top_k): token * top_k + slot, ascending within an expert
  std::span<int32_t> slot_places;  // (tokens * top_k): where a slot stands in expert_slots, kNoOutput where nothing was computed

  std::span<int32_t> logits_rows;   // rows whose logits are computed together
  std::span<BatchChunk> chunks;     // (tokens)
  std::span<TokenId> tokens;        // (tokens)
  std::span<int32_t> positions;     // (tokens)
  std::span<TokenId> position_ids;  // (tokens): the same as rows of a prefix-LM's embeddings
  std::span<int32_t> row_chunks;    // (tokens)
};

// What the host reads or writes is carved from `shared`: masked, logits, what gates are asked with, and all that
// is no number. Where the backend's memory is unified both are one.
struct ScratchSizes {
  uint64_t working = 0;
  uint64_t shared = 0;
};
ScratchSizes SeparateScratchBytes(const ModelSpec& spec, const ModelOptions& options, int threads);
// Of unified memory.
uint64_t ScratchBytes(const ModelSpec& spec, const ModelOptions& options, int threads);
// For a step of so many tokens; 0 where they have memory of their own.
uint64_t LentBytes(const ModelSpec& spec, const ModelOptions& options, int tokens);
// `storage` has ScratchBytes, or of each SeparateScratchBytes.
Scratch CarveScratch(const ModelSpec& spec, const ModelOptions& options, int threads, std::span<std::byte> storage);
Scratch CarveScratch(const ModelSpec& spec, const ModelOptions& options, int threads, std::span<std::byte> working,
                     std::span<std::byte> shared);
// `storage` has LentBytes of as many tokens.
TokenRows CarveLent(const ModelSpec& spec, const ModelOptions& options, int tokens, std::span<std::byte> storage);

// With the memory that it is carved from.
struct OwnScratch {
  Buffer working;
  Buffer shared;  // none where memory is unified
  Scratch scratch;
};
absl::StatusOr<OwnScratch> AllocateScratch(const ModelSpec& spec, const ModelOptions& options, int threads,
                                           BackendMemory& memory);

}  // namespace moed
