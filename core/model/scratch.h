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

// Shapes: tokens = most tokens of a step, ffn = the widest of the model's feed-forward blocks.
struct Scratch {
  std::span<float> x;            // (tokens, hidden): the residual stream
  std::span<float> normed;       // (tokens, hidden)
  std::span<float> projected;    // (tokens, hidden): outputs of o and down, gathered inputs of an expert
  std::span<float> shared;       // (tokens, hidden): the shared expert's output
  std::span<float> q;            // (tokens, heads, head_dim)
  std::span<float> k;            // (tokens, kv_heads, head_dim)
  std::span<float> v;            // (tokens, kv_heads, head_dim)
  std::span<float> attended;     // (tokens, heads, head_dim)
  std::span<float> gate;         // (tokens, ffn)
  std::span<float> up;           // (tokens, ffn)
  std::span<float> slots;        // (tokens, top_k, hidden): outputs of the chosen experts
  std::span<float> router;       // (tokens, experts): logits, then probabilities
  std::span<float> shared_gate;  // (tokens)
  std::span<float> logits;       // (logits rows, vocabulary)
  std::span<float> scores;       // attention

  std::span<std::byte> normed_storage;  // prepared `normed`; lives through a whole block
  std::span<std::byte> inner_storage;   // prepared inputs of o, of an expert and of down, one after the other
  std::span<std::byte> gate_storage;    // one prepared row, for gate probabilities asked for in the middle of a step

  std::span<const float*> key_pages;
  std::span<const float*> value_pages;
  std::span<AttentionJob> attention_jobs;  // (tokens)

  std::span<ExpertChoice> choices;  // (tokens, top_k)
  std::span<TokenRouting> routing;  // (tokens)
  std::span<int32_t> expert_begin;  // (experts + 1): where the slots of each expert begin in expert_slots
  std::span<int32_t> expert_slots;  // (tokens * top_k): token * top_k + slot, ascending within an expert
  std::span<uint8_t> delivered;     // (experts)

  std::span<int32_t> logits_rows;  // rows whose logits are computed together
  std::span<BatchChunk> chunks;    // (tokens)
  std::span<int32_t> positions;    // (tokens)
  std::span<int32_t> row_chunks;   // (tokens)
};

uint64_t ScratchBytes(const ModelSpec& spec, const ModelOptions& options, int threads);
// `storage` has ScratchBytes.
Scratch CarveScratch(const ModelSpec& spec, const ModelOptions& options, int threads, std::span<std::byte> storage);

}  // namespace moed
