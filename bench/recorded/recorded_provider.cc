#include "bench/recorded/recorded_provider.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"

namespace moed {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kLeastWeight = 0.5f;  // of a choice whose recorded weight was rounded to 0, in 1/255

int PositionOf(const RoutingShape& shape, LayerId layer) {
  const auto found = std::ranges::lower_bound(shape.layers, layer);
  MOED_CHECK(found != shape.layers.end() && *found == layer);
  return static_cast<int>(found - shape.layers.begin());
}

}  // namespace

void RecordedProvider::OnSequenceEnd(SequenceId sequence) {
  sequences_.erase(sequence);
  next_.OnSequenceEnd(sequence);
}

// All tokens of a step are told before its first layer.
void RecordedProvider::OnToken(SequenceId id, TokenId token) {
  if (step_began_) ++step_;
  step_began_ = false;
  Sequence& sequence = sequences_[id];
  if (sequence.recorded == nullptr) {
    sequence.recorded = &trace_.sequences[static_cast<size_t>(token.value()) % trace_.sequences.size()];
  }
  if (sequence.step != step_) sequence.rows.clear();
  sequence.step = step_;
  sequence.row = 0;
  sequence.rows.push_back(sequence.recorded->first + sequence.played++ % sequence.recorded->tokens);
  next_.OnToken(id, trace_.token_ids[sequence.rows.back()]);
}

void RecordedProvider::OnGateInput(SequenceId sequence, LayerId layer, std::span<const float> hidden) {
  step_began_ = true;
  next_.OnGateInput(sequence, layer, Ticket(Find(sequence).rows.back(), layer, hidden.size()));
}

void RecordedProvider::OnTokenGateInput(SequenceId sequence, LayerId layer, std::span<const float> hidden) {
  next_.OnTokenGateInput(sequence, layer, Ticket(NextRow(Find(sequence)), layer, hidden.size()));
}

// No choice counts as masked: those of the model's own router mean nothing here. Told so, the model keeps what is chosen now.
void RecordedProvider::MaskRouter(LayerId layer, std::span<const float>, std::span<float> logits, TokenRouting& token) {
  const size_t at = trace_.At(NextRow(Find(token.sequence)), PositionOf(trace_.shape, layer));
  std::ranges::fill(logits, kNever);
  for (size_t slot = at; slot < at + static_cast<size_t>(trace_.shape.top_k); ++slot) {
    logits[trace_.experts[slot]] = std::log(std::max(static_cast<float>(trace_.probabilities[slot]), kLeastWeight));
  }
  token.masked = static_cast<int>(std::ranges::count_if(
      token.choices, [&](const ExpertChoice& choice) { return logits[static_cast<size_t>(choice.expert)] == kNever; }));
}

void RecordedProvider::Begin(const LayerRouting& routing) {
  routing_.assign(routing.tokens.begin(), routing.tokens.end());
  for (TokenRouting& token : routing_) {
    const Sequence& sequence = Find(token.sequence);
    const size_t row = NextRow(Find(token.sequence));
    token.token = trace_.token_ids[row];
    token.before = row == sequence.recorded->first ? TokenId{-1} : trace_.token_ids[row - 1];
    token.masked = 0;
  }
  next_.Begin({routing.layer, routing_});
}

RecordedProvider::Sequence& RecordedProvider::Find(SequenceId sequence) {
  const auto found = sequences_.find(sequence);
  MOED_CHECK(found != sequences_.end());
  return found->second;
}

size_t RecordedProvider::NextRow(Sequence& sequence) {
  const size_t token = sequence.rows[sequence.row];
  sequence.row = (sequence.row + 1) % sequence.rows.size();
  return token;
}

std::span<const float> RecordedProvider::Ticket(size_t token, LayerId layer, size_t hidden) {
  MOED_CHECK(hidden >= kTicketFloats);
  ticket_.assign(hidden, 0.f);
  ticket_[0] = static_cast<float>(token);
  ticket_[1] = static_cast<float>(PositionOf(trace_.shape, layer));
  return ticket_;
}

}  // namespace moed
