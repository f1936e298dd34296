#include "core/model/scratch.h"

#include <algorithm>
#include <bit>

#include "core/base/status.h"
#include "core/kernels/attention_scratch.h"

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

// Few sizes: what is lent stays as it is from step to step.
int LentTokens(const ModelOptions& options, int tokens) {
  constexpr unsigned kLeast = 512;
  return std::min(options.max_step_tokens, static_cast<int>(std::bit_ceil(std::max(static_cast<unsigned>(tokens), kLeast))));
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

// What spreads a decoded token's positions over a device's blocks of threads, of the layers that need most.
size_t FloatsOfSpreadToken(const ModelSpec& spec, int longest) {
  const int64_t pieces = CeilDiv(longest, cuda::kAttentionPiece);
  if (spec.latent) return static_cast<size_t>(cuda::PieceFloats(spec.heads, pieces, spec.latent->kv_rank).all());
  int64_t most = 0;
  for (int i = 0; i < spec.rotation_count(); ++i) {
    const HeadShape shape = spec.HeadsOf(i);
    most = std::max(most, cuda::PieceFloats(spec.QueryHeads(shape), pieces, shape.head_dim).all());
  }
  return static_cast<size_t>(most);
}

size_t ScoreFloats(const ModelSpec& spec, const ModelOptions& options, int threads, bool of_device) {
  const size_t of_threads = spec.latent ? ComputeBackend::LatentScratchFloats(threads, options.max_context)
                                        : ComputeBackend::AttentionScratchFloats(threads, options.max_context);
  return of_device ? std::max(of_threads, FloatsOfSpreadToken(spec, options.max_context)) : of_threads;
}

// Of a block of tokens that goes through a layer together.
struct BlockWidths {
  size_t rows, wide;  // tokens; and those that one expert gathers
  size_t query, key, attended;
  int ffn, gate_rank, widest;
};

BlockWidths WidthsOf(const ModelSpec& spec, const ModelOptions& options) {
  BlockWidths widths{};
  widths.rows = std::min(options.max_step_tokens, options.fast_matmul ? kHalfBlockRows : kBlockRows);
  widths.wide = std::max<size_t>(widths.rows, kGroupRows);
  widths.query = spec.LargestQueryWidth();
  widths.key = spec.LargestKeyWidth();
  widths.attended = std::max(spec.latent ? static_cast<size_t>(spec.heads) * spec.ValueDim() : widths.query,
                             static_cast<size_t>(spec.recurrence().output_width));
  widths.ffn = std::max({spec.expert_ffn, spec.shared_ffn, spec.dense_ffn});
  widths.gate_rank = spec.delta_net ? spec.delta_net->gate_rank : 0;
  widths.widest = std::max(
      {spec.hidden, static_cast<int>(widths.attended), widths.ffn, spec.latent ? spec.latent->q_rank : 0, widths.gate_rank});
  return widths;
}

template <class Source>
void CarveLogits(const ModelSpec& spec, size_t rows, Source& source, Source& shared, Scratch& scratch) {
  scratch.logits = shared.template Take<float>(rows * spec.vocabulary);
  const bool capped_apart = &source != &shared && spec.logits_cap != 0;
  scratch.uncapped_logits = capped_apart ? source.template Take<float>(rows * spec.vocabulary) : scratch.logits;
  scratch.logits_rows = shared.template Take<int32_t>(rows);
}

// Attention and recurrent layers.
template <class Source>
void CarveMixing(const ModelSpec& spec, const BlockWidths& widths, Source& source, Source& shared, Scratch& scratch) {
  const size_t rows = widths.rows;
  const Recurrence recurrence = spec.recurrence();
  const auto floats = [&](size_t count) { return source.template Take<float>(count); };
  scratch.projected = floats(rows * spec.hidden);
  scratch.q = floats(rows * widths.query);
  if (spec.latent) {
    scratch.latent = CarveLatent(spec, *spec.latent, rows, source);
  } else {
    scratch.k = floats(rows * widths.key);
    scratch.v = floats(rows * widths.key);
  }
  if (spec.encoder) {
    const size_t numbers = static_cast<size_t>(spec.heads) * spec.encoder->distances();
    scratch.encoder_bias = floats(numbers);
    scratch.decoder_bias = floats(numbers);
  }
  scratch.attended = floats(rows * widths.attended);
  if (spec.attention_gate || !spec.recurrent.empty()) scratch.attention_gate = floats(rows * widths.attended);
  scratch.mixed = floats(rows * recurrence.convolved_width);
  scratch.convolved = floats(rows * recurrence.convolved_width);
  scratch.decay = floats(rows * recurrence.decays);
  scratch.rate = floats(rows * recurrence.heads);
  if (!spec.delta_net) return;
  scratch.gate_ranks = floats(2 * rows * widths.gate_rank);
  scratch.unit = floats(spec.delta_net->key_dim);
  scratch.unit_on_host = &source == &shared ? scratch.unit : shared.template Take<float>(spec.delta_net->key_dim);
}

// What products with matrices read and write.
template <class Source>
void CarveProducts(const ModelSpec& spec, const ModelOptions& options, const BlockWidths& widths, Source& source,
                   Scratch& scratch) {
  const auto prepared = [&](size_t rows, int cols, InputForms forms = kAllForms) {
    return source.template Take<std::byte>(ActivationBytes(static_cast<int>(rows), cols, forms));
  };
  if (spec.gated()) scratch.gate = source.template Take<float>(widths.wide * widths.ffn);
  scratch.up = source.template Take<float>(widths.wide * widths.ffn);
  scratch.block_storage = prepared(widths.rows, spec.hidden);
  scratch.gathered_storage = prepared(widths.wide, spec.hidden, options.expert_inputs);
  scratch.inner_storage = prepared(widths.wide, widths.widest);
  scratch.gate_storage = prepared(1, spec.hidden);
  if (!options.fast_matmul) return;
  const int tallest = std::max(widths.widest, static_cast<int>(std::max(widths.query, widths.key)));
  scratch.halves =
      source.template Take<std::byte>(ComputeBackend::HalfProductBytes(static_cast<int>(widths.rows), tallest, widths.widest));
}

// What the host writes of a step: its tokens, their places, their routing.
template <class Source>
void CarveStep(const ModelSpec& spec, const ModelOptions& options, size_t rows, Source& shared, Scratch& scratch) {
  const size_t tokens = options.max_step_tokens;
  const size_t page_pointers =
      static_cast<size_t>(KvPool::PagesFor(options.max_context)) * std::min<size_t>(kContextsOfPagePointers, rows);
  scratch.kv_pages = shared.template Take<std::byte*>(page_pointers);
  scratch.kv_runs = shared.template Take<KvRun>(rows);
  if (!spec.recurrent.empty()) scratch.state_runs = shared.template Take<StateRun>(rows);

  scratch.gate_input = shared.template Take<float>(spec.hidden);
  scratch.gate_scores = shared.template Take<float>(spec.experts);
  scratch.choices = shared.template Take<ExpertChoice>(tokens * spec.top_k);
  scratch.unmasked_choices = shared.template Take<ExpertChoice>(tokens * spec.top_k);
  scratch.whole_choices = shared.template Take<ExpertChoice>(spec.MoeLayers().size() * kGroupRows);
  scratch.routing = shared.template Take<TokenRouting>(tokens);
  scratch.expert_begin = shared.template Take<int32_t>(spec.experts + 1);
  scratch.expert_slots = shared.template Take<int32_t>(tokens * spec.top_k);
  scratch.slot_places = shared.template Take<int32_t>(tokens * spec.top_k);

  scratch.chunks = shared.template Take<BatchChunk>(tokens);
  scratch.tokens = shared.template Take<TokenId>(tokens);
  scratch.positions = shared.template Take<int32_t>(tokens);
  if (spec.prefix) scratch.position_ids = shared.template Take<TokenId>(tokens);
  scratch.row_chunks = shared.template Take<int32_t>(tokens);
}

template <class Source>
Scratch Carve(const ModelSpec& spec, const ModelOptions& options, int threads, Source& source, Source& shared) {
  const BlockWidths widths = WidthsOf(spec, options);
  Scratch scratch{CarveRows(spec, options.expert_inputs, OwnTokens(options), source, shared)};
  scratch.block_rows = static_cast<int>(widths.rows);
  CarveLogits(spec, std::min<size_t>(options.logits_rows, widths.rows), source, shared, scratch);
  scratch.scores = source.template Take<float>(ScoreFloats(spec, options, threads, /*of_device=*/&source != &shared));
  CarveMixing(spec, widths, source, shared, scratch);
  CarveProducts(spec, options, widths, source, scratch);
  CarveStep(spec, options, widths.rows, shared, scratch);
  if (&source != &shared && Model::LetsProcessorCompute(spec)) {
    scratch.of_processor = CarveProcessorRows(spec, options, shared);
  }
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

uint64_t LentBytes(const ModelSpec& spec, const ModelOptions& options, int tokens) {
  if (tokens <= OwnTokens(options)) return 0;
  ArenaSizer sizer;
  CarveRows(spec, options.expert_inputs, LentTokens(options, tokens), sizer, sizer);
  return RoundUp(sizer.bytes(), kPageBytes);
}

TokenRows CarveLent(const ModelSpec& spec, const ModelOptions& options, int tokens, std::span<std::byte> storage) {
  Arena arena(storage);
  return CarveRows(spec, options.expert_inputs, LentTokens(options, tokens), arena, arena);
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
