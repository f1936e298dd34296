#include "core/model/scratch.h"

#include <algorithm>

#include "core/base/status.h"

namespace moed {
namespace {

// Long contexts: attention of a step goes in groups of sequences that fill this many whole contexts of page pointers.
constexpr int kContextsOfPagePointers = 16;

// Counts what Arena would hand out.
class ArenaSizer {
 public:
  template <class T>
  std::span<T> Take(size_t count) {
    bytes_ += Arena::Rounded(count * sizeof(T));
    return {};
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_ = 0;
};

int OwnTokens(const ModelOptions& options) {
  return options.own_step_tokens > 0 ? options.own_step_tokens : options.max_step_tokens;
}

// `source` and `shared` are one where memory is unified.
template <class Source>
TokenRows CarveRows(const ModelSpec& spec, InputForms expert_inputs, size_t tokens, Source& source, Source& shared) {
  TokenRows rows;
  const auto floats = [&](size_t count) { return source.template Take<float>(count); };
  const auto shared_floats = [&](size_t count) { return shared.template Take<float>(count); };
  rows.x = floats(tokens * spec.hidden);
  if (spec.parallel) rows.layer_input = floats(tokens * spec.hidden);
  if (spec.shared_ffn > 0 || spec.prefix) rows.shared = floats(tokens * spec.hidden);
  rows.slots = floats(tokens * spec.top_k * spec.hidden);
  rows.normed = {rows.slots.data(), tokens * spec.hidden};
  rows.normed_on_host = &source == &shared ? rows.normed : shared_floats(rows.normed.size());
  rows.router = floats(tokens * spec.experts);
  rows.masked = shared_floats(tokens * spec.experts);
  if (spec.shared_gate) rows.shared_gate = floats(tokens);
  rows.input_storage = source.template Take<std::byte>(ActivationBytes(static_cast<int>(tokens), spec.hidden, expert_inputs));
  return rows;
}

template <class Source>
LatentRows CarveLatent(const ModelSpec& spec, const LatentAttention& latent, size_t rows, Source& source) {
  const auto floats = [&](size_t count) { return source.template Take<float>(count); };
  LatentRows carved;
  carved.q_a = floats(rows * latent.q_rank);
  carved.latents = floats(rows * latent.kv_rank);
  carved.rotated = floats(rows * spec.rotary_dims);
  carved.query = floats(rows * spec.heads * latent.kv_rank);
  const size_t head_bytes = ActivationBytes(static_cast<int>(rows), std::max(latent.kv_rank, spec.head_dim - spec.rotary_dims));
  carved.head_storage = source.template Take<std::byte>(kLatentHeads * head_bytes);
  return carved;
}

template <class Source>
ProcessorRows CarveProcessorRows(const ModelSpec& spec, const ModelOptions& options, Source& source) {
  const size_t tokens = std::min(OwnTokens(options), kMostTokensOfProcessor);
  const auto floats = [&](size_t count) { return source.template Take<float>(count); };
  const auto prepared = [&](size_t rows, int cols, InputForms forms) {
    return source.template Take<std::byte>(ActivationBytes(static_cast<int>(rows), cols, forms));
  };
  ProcessorRows rows;
  rows.slots = floats(tokens * spec.top_k * spec.hidden);
  rows.input_storage = prepared(tokens, spec.hidden, options.expert_inputs);
  if (spec.gated()) rows.gate = floats(static_cast<size_t>(kGroupRows) * spec.expert_ffn);
  rows.up = floats(static_cast<size_t>(kGroupRows) * spec.expert_ffn);
  rows.gathered_storage = prepared(kGroupRows, spec.hidden, options.expert_inputs);
  rows.inner_storage = prepared(kGroupRows, spec.expert_ffn, kAllForms);
  return rows;
}

template <class Source>
Scratch Carve(const ModelSpec& spec, const ModelOptions& options, int threads, Source& source, Source& shared) {
  const size_t tokens = options.max_step_tokens;
  const size_t rows = std::min(options.max_step_tokens, options.fast_matmul ? kHalfBlockRows : kBlockRows);
  const size_t wide = std::max<size_t>(rows, kGroupRows);
  const size_t q_width = spec.LargestQueryWidth();
  const size_t kv_width = spec.LargestKeyWidth();
  const int ffn = std::max({spec.expert_ffn, spec.shared_ffn, spec.dense_ffn});
  const Recurrence recurrence = spec.recurrence();
  const size_t attended_width = std::max(spec.latent ? static_cast<size_t>(spec.heads) * spec.ValueDim() : q_width,
                                         static_cast<size_t>(recurrence.output_width));
  const int gate_rank = spec.delta_net ? spec.delta_net->gate_rank : 0;
  const int widest =
      std::max({spec.hidden, static_cast<int>(attended_width), ffn, spec.latent ? spec.latent->q_rank : 0, gate_rank});
  const size_t logits_rows = std::min<size_t>(options.logits_rows, rows);
  const size_t page_pointers =
      static_cast<size_t>(KvPool::PagesFor(options.max_context)) * std::min<size_t>(kContextsOfPagePointers, rows);

  Scratch scratch{CarveRows(spec, options.expert_inputs, OwnTokens(options), source, shared)};
  scratch.block_rows = static_cast<int>(rows);
  const auto floats = [&](size_t count) { return source.template Take<float>(count); };
  const auto shared_floats = [&](size_t count) { return shared.template Take<float>(count); };
  scratch.logits = shared_floats(logits_rows * spec.vocabulary);
  const bool capped_apart = &source != &shared && spec.logits_cap != 0;
  scratch.uncapped_logits = capped_apart ? floats(logits_rows * spec.vocabulary) : scratch.logits;
  scratch.scores = floats(spec.latent ? ComputeBackend::LatentScratchFloats(threads, options.max_context)
                                      : ComputeBackend::AttentionScratchFloats(threads, options.max_context));

  scratch.projected = floats(rows * spec.hidden);
  scratch.q = floats(rows * q_width);
  if (spec.latent) {
    scratch.latent = CarveLatent(spec, *spec.latent, rows, source);
  } else {
    scratch.k = floats(rows * kv_width);
    scratch.v = floats(rows * kv_width);
  }
  if (spec.encoder) {
    const size_t numbers = static_cast<size_t>(spec.heads) * spec.encoder->distances();
    scratch.encoder_bias = floats(numbers);
    scratch.decoder_bias = floats(numbers);
  }
  scratch.attended = floats(rows * attended_width);
  if (spec.attention_gate || !spec.recurrent.empty()) scratch.attention_gate = floats(rows * attended_width);
  scratch.mixed = floats(rows * recurrence.convolved_width);
  scratch.convolved = floats(rows * recurrence.convolved_width);
  scratch.decay = floats(rows * recurrence.decays);
  scratch.rate = floats(rows * recurrence.heads);
  if (spec.delta_net) {
    scratch.gate_ranks = floats(2 * rows * gate_rank);
    scratch.unit = floats(spec.delta_net->key_dim);
    scratch.unit_on_host = &source == &shared ? scratch.unit : shared_floats(spec.delta_net->key_dim);
  }
  if (spec.gated()) scratch.gate = floats(wide * ffn);
  scratch.up = floats(wide * ffn);

  scratch.block_storage = source.template Take<std::byte>(ActivationBytes(static_cast<int>(rows), spec.hidden));
  scratch.gathered_storage =
      source.template Take<std::byte>(ActivationBytes(static_cast<int>(wide), spec.hidden, options.expert_inputs));
  scratch.inner_storage = source.template Take<std::byte>(ActivationBytes(static_cast<int>(wide), widest));
  if (options.fast_matmul) {
    const int tallest = std::max(widest, static_cast<int>(std::max(q_width, kv_width)));
    scratch.halves = source.template Take<std::byte>(ComputeBackend::HalfProductBytes(static_cast<int>(rows), tallest, widest));
  }
  if (&source != &shared && Model::LetsProcessorCompute(spec)) {
    scratch.of_processor = CarveProcessorRows(spec, options, shared);
  }
  scratch.gate_input = shared_floats(spec.hidden);
  scratch.gate_scores = shared_floats(spec.experts);
  scratch.gate_storage = source.template Take<std::byte>(ActivationBytes(1, spec.hidden));

  scratch.kv_pages = shared.template Take<std::byte*>(page_pointers);
  scratch.kv_runs = shared.template Take<KvRun>(rows);
  if (!spec.recurrent.empty()) scratch.state_runs = shared.template Take<StateRun>(rows);

  scratch.choices = shared.template Take<ExpertChoice>(tokens * spec.top_k);
  scratch.unmasked_choices = shared.template Take<ExpertChoice>(tokens * spec.top_k);
  scratch.whole_choices = shared.template Take<ExpertChoice>(spec.MoeLayers().size() * kGroupRows);
  scratch.routing = shared.template Take<TokenRouting>(tokens);
  scratch.expert_begin = shared.template Take<int32_t>(spec.experts + 1);
  scratch.expert_slots = shared.template Take<int32_t>(tokens * spec.top_k);
  scratch.slot_places = shared.template Take<int32_t>(tokens * spec.top_k);

  scratch.logits_rows = shared.template Take<int32_t>(logits_rows);
  scratch.chunks = shared.template Take<BatchChunk>(tokens);
  scratch.tokens = shared.template Take<TokenId>(tokens);
  scratch.positions = shared.template Take<int32_t>(tokens);
  if (spec.prefix) scratch.position_ids = shared.template Take<TokenId>(tokens);
  scratch.row_chunks = shared.template Take<int32_t>(tokens);
  return scratch;
}

}  // namespace

ScratchSizes SeparateScratchBytes(const ModelSpec& spec, const ModelOptions& options, int threads) {
  ArenaSizer working, shared;
  Carve(spec, options, threads, working, shared);
  return {RoundUp(working.bytes(), kPageBytes), RoundUp(shared.bytes(), kPageBytes)};
}

uint64_t ScratchBytes(const ModelSpec& spec, const ModelOptions& options, int threads) {
  ArenaSizer sizer;
  Carve(spec, options, threads, sizer, sizer);
  return RoundUp(sizer.bytes(), kPageBytes);
}

uint64_t LentBytes(const ModelSpec& spec, const ModelOptions& options) {
  if (OwnTokens(options) == options.max_step_tokens) return 0;
  ArenaSizer sizer;
  CarveRows(spec, options.expert_inputs, options.max_step_tokens, sizer, sizer);
  return RoundUp(sizer.bytes(), kPageBytes);
}

TokenRows CarveLent(const ModelSpec& spec, const ModelOptions& options, std::span<std::byte> storage) {
  Arena arena(storage);
  return CarveRows(spec, options.expert_inputs, options.max_step_tokens, arena, arena);
}

Scratch CarveScratch(const ModelSpec& spec, const ModelOptions& options, int threads, std::span<std::byte> storage) {
  Arena arena(storage);
  return Carve(spec, options, threads, arena, arena);
}

Scratch CarveScratch(const ModelSpec& spec, const ModelOptions& options, int threads, std::span<std::byte> working,
                     std::span<std::byte> shared) {
  Arena of_working(working), of_shared(shared);
  return Carve(spec, options, threads, of_working, of_shared);
}

absl::StatusOr<OwnScratch> AllocateScratch(const ModelSpec& spec, const ModelOptions& options, int threads,
                                           BackendMemory& memory) {
  OwnScratch own;
  if (memory.unified()) {
    MOED_ASSIGN_OR_RETURN(own.working, memory.working().Allocate(ScratchBytes(spec, options, threads)));
    own.scratch = CarveScratch(spec, options, threads, own.working.span());
    return own;
  }
  const ScratchSizes sizes = SeparateScratchBytes(spec, options, threads);
  MOED_ASSIGN_OR_RETURN(own.working, memory.working().Allocate(sizes.working));
  MOED_ASSIGN_OR_RETURN(own.shared, memory.shared().Allocate(sizes.shared));
  own.scratch = CarveScratch(spec, options, threads, own.working.span(), own.shared.span());
  return own;
}

}  // namespace moed
