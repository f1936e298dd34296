#include "core/expert/swapmoe/experts.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/check.h"

namespace moed {
namespace {

constexpr int kNoLayer = -1;
constexpr size_t kKeyBytes = sizeof(ExpertIndex::Place) + 2 * sizeof(uint32_t) + sizeof(uint64_t);  // its place, as a resident

}  // namespace

SwapMoeExperts::SwapMoeExperts(const ExpertModelShape& model, SwapMoeOptions options)
    : index_(model.moe_layers, model.experts_per_layer, model.precisions),
      places_(index_.Places()),
      experts_(static_cast<size_t>(model.experts_per_layer)),
      encoder_positions_(model.encoder_positions()),
      precisions_(static_cast<size_t>(model.precisions)),
      slots_(std::move(options.slots)),
      updates_(options.updates),
      fade_(options.fade),
      clock_(*options.clock),
      importance_(model.experts_per_layer, model.top_k, std::move(options.norms), options.score),
      frequency_(options.frequency),
      in_set_(index_.layers() * experts_),
      seen_(in_set_.size()),
      residents_(index_.size()),
      held_(static_cast<size_t>(index_.layers())),
      filled_(held_.size()),
      layers_to_fill_(index_.layers()) {
  MOED_CHECK(slots_.size() == held_.size());
  absl::MutexLock lock(&mutex_);
  for (int layer = 0; layer < index_.layers(); ++layer) {
    MOED_CHECK(slots_[layer] >= 1 && slots_[layer] <= model.experts_per_layer);
    importance_.ChooseByNorm(layer, slots_[layer], SetOf(layer));
  }
}

void SwapMoeExperts::OnToken(LayerId layer, Phase phase, std::span<const float> hidden, std::span<const float> logits) {
  const int position = index_.Position(layer);
  absl::MutexLock lock(&mutex_);
  if (routing_ != position) {
    routing_ = position;
    if (position <= last_routed_) BeginStep();
    last_routed_ = position;
  }
  if (position == 0 || position == encoder_positions_) {
    ++window_tokens_;
    ++step_.tokens;
    step_.answers_alone = step_.answers_alone && phase == Phase::kDecode;
  }
  if (updates_) importance_.Add(position, hidden, logits);
}

void SwapMoeExperts::BeginStep() {
  if (updates_ && window_tokens_ >= frequency_.window()) {
    bool late = false;
    for (int layer = 0; layer < index_.layers(); ++layer) late = late || Missing(layer) > 0;
    if (layers_to_fill_ == 0) frequency_.OnWindowEnd(late);
    ChooseSets();
    window_tokens_ = 0;
  }
  step_ = {.begun_nanos = clock_.NowNanos()};
}

void SwapMoeExperts::ChooseSets() {
  for (int layer = 0; layer < index_.layers(); ++layer) {
    importance_.ChooseSet(layer, slots_[layer], SetOf(layer));
    importance_.Fade(layer, fade_);
  }
}

void SwapMoeExperts::OnRouted(LayerId layer) {
  const int position = index_.Position(layer);
  absl::MutexLock lock(&mutex_);
  routing_ = kNoLayer;
  const bool whole_step = position == index_.layers() - 1 && step_.answers_alone && step_.tokens > 0;
  if (whole_step && layers_to_fill_ == 0) frequency_.OnStep(step_.tokens, SecondsBetween(step_.begun_nanos, clock_.NowNanos()));
}

void SwapMoeExperts::Usable(LayerId layer, Phase phase, absl::FunctionRef<bool(int32_t expert)> resident,
                            std::span<uint8_t> usable) {
  const int position = index_.Position(layer);
  absl::MutexLock lock(&mutex_);
  int there = 0;
  for (size_t e = 0; e < experts_; ++e) {
    const bool stays = leaving_ != First(position) + e && resident(static_cast<int32_t>(e));
    there += usable[e] = stays ? 1 : 0;
  }
  std::ranges::copy(usable, seen_.begin() + static_cast<ptrdiff_t>(First(position)));
  if (!filled_[position] && there >= slots_[position]) {
    filled_[position] = 1;
    --layers_to_fill_;
  }
  if (there > 0 && (filled_[position] || phase == Phase::kDecode)) return;
  const std::span<const uint8_t> set = SetOf(position);
  for (size_t e = 0; e < experts_; ++e) usable[e] |= set[e];
}

int SwapMoeExperts::Missing(int layer) const {
  int missing = 0;
  for (size_t e = First(layer); e < First(layer) + experts_; ++e) missing += in_set_[e] && !Here(e) ? 1 : 0;
  return missing;
}

bool SwapMoeExperts::SeenBeside(size_t expert) const {
  const size_t first = expert / experts_ * experts_;
  for (size_t e = first; e < first + experts_; ++e) {
    if (seen_[e] && e != expert) return true;
  }
  return false;
}

// The window's tokens are cut evenly among the layers (3.3); what is not filled yet does not wait for its turn.
bool SwapMoeExperts::TurnHasCome(int layer) const {
  if (layers_to_fill_ > 0) return true;
  const auto layers = static_cast<int64_t>(slots_.size());
  const int64_t window = std::max(frequency_.window(), 1);
  return layer < (window_tokens_ * layers + window - 1) / window;
}

void SwapMoeExperts::Due(LayerId from, size_t most, std::vector<Guess>& loads) {
  absl::MutexLock lock(&mutex_);
  const int here = index_.Position(from);
  for (int distance = 1; distance <= index_.layers(); ++distance) {
    const int layer = (here + distance) % index_.layers();
    if (!TurnHasCome(layer)) continue;
    for (size_t e = First(layer); e < First(layer) + experts_; ++e) {
      if (!in_set_[e] || Here(e)) continue;
      if (most-- == 0) return;
      loads.push_back(
          {.key = {index_.Layer(layer), static_cast<int32_t>(e - First(layer))}, .probability = 1, .layer_distance = distance});
    }
  }
}

void SwapMoeExperts::OnAccess(const CachedKey& key) {
  absl::MutexLock lock(&mutex_);
  residents_.Touch(index_.Of(key));
}

void SwapMoeExperts::OnInsert(const CachedKey& key) {
  absl::MutexLock lock(&mutex_);
  residents_.Insert(index_.Of(key));
  seen_[First(index_.Position(key.layer)) + static_cast<size_t>(key.expert)] = 0;
  ++held_[index_.Position(key.layer)];
}

void SwapMoeExperts::OnEvict(const CachedKey& key) {
  absl::MutexLock lock(&mutex_);
  residents_.Remove(index_.Of(key));
  leaving_.reset();
  seen_[First(index_.Position(key.layer)) + static_cast<size_t>(key.expert)] = 0;
  --held_[index_.Position(key.layer)];
}

std::optional<CachedKey> SwapMoeExperts::Victim(const Incoming& incoming, absl::FunctionRef<bool(CachedKey)> evictable) {
  absl::MutexLock lock(&mutex_);
  const int own = index_.Position(incoming.key.layer);
  const bool planned = incoming.reason == LoadReason::kPrefetch;
  const auto kept = [this](size_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return key % precisions_ == kReferencePrecision && in_set_[places_[key].expert];
  };
  const auto over = [this](int layer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return std::max(held_[layer] - slots_[layer], 0); };
  // Least first: what no set keeps, but not the last one of another layer; of the layer that holds most beyond its slots, then of
  // the incoming one's own; the least important.
  const auto rank = [&](uint32_t key) {
    mutex_.AssertHeld();  // called by a template, which knows of no mutex
    const auto [expert, place] = places_[key];
    const auto layer = static_cast<int>(place);
    const bool last = layer != own && held_[layer] == 1;
    return std::tuple(last, kept(key), -over(layer), layer != own,
                      importance_.Of(layer, static_cast<int>(expert - First(layer))));
  };
  // A planned load takes from a layer that holds more than its slots. There is one where no slot is free, and it keeps one to
  // answer with that is there, not on its way.
  const auto may_leave = [&](size_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto layer = static_cast<int>(places_[key].layer);
    if (planned && (kept(key) || layer == routing_ || over(layer) == 0 || !SeenBeside(places_[key].expert))) return false;
    return evictable(index_.KeyAt(key));
  };
  const std::optional<CachedKey> victim = index_.KeyIfAny(residents_.LeastOf(rank, may_leave));
  if (victim && victim->precision == kReferencePrecision) leaving_ = places_[index_.Of(*victim)].expert;
  return victim;
}

size_t SwapMoeExperts::memory_bytes() const {
  absl::MutexLock lock(&mutex_);
  return importance_.memory_bytes() + in_set_.size() + seen_.size() + places_.size() * kKeyBytes;
}

size_t SwapMoeExperts::Bytes(const ExpertModelShape& model) {
  return SwapMoeImportance::Bytes(model.experts(), static_cast<size_t>(model.experts_per_layer)) + 2 * model.experts() +
         model.experts() * static_cast<size_t>(model.precisions) * kKeyBytes;
}

int SwapMoeExperts::window() const {
  absl::MutexLock lock(&mutex_);
  return frequency_.window();
}

}  // namespace moed
