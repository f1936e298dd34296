// All experts of a store in memory, handed out in any order; single experts can be made to fail. A test double for
// ExpertProvider.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/expert/provider.h"
#include "core/io/file.h"
#include "core/store/store.h"

namespace moed {

// One expert that cannot be read: as a whole, or from one part on.
struct ExpertFault {
  ExpertKey key;
  std::optional<ExpertPart> part;
  absl::Status status = DataLoss("injected");
};

class MemoryProvider final : public ExpertProvider, public ActivationLender {
 public:
  explicit MemoryProvider(
      const StoreReader& store, std::function<Precision(LayerId)> precision_of = [](LayerId) { return kReferencePrecision; },
      Allocator& memory = Allocator::Host())
      : precision_of_(std::move(precision_of)), memory_(memory), description_(store.description()) {
    const auto file = OpenBuffered(store.path());
    EXPECT_TRUE(file.ok()) << file.status();
    const StoreDescription& description = description_;
    for (LayerId layer : description.moe_layers) {
      for (int expert = 0; expert < description.experts_per_layer; ++expert) {
        const CachedKey key{layer, expert, precision_of_(layer)};
        auto record = memory_.Allocate(store.expert_bytes(key));
        EXPECT_TRUE(record.ok() && (*file)->ReadAt(store.RecordOffset(key), record->span()).ok());
        auto& entry = experts_[{layer, expert}];
        entry = std::make_unique<Expert>(*this, ExpertKey{layer, expert}, *std::move(record));
        for (const ExpertSegment& segment : store.expert_layout(key).segments) {
          entry->parts[segment.part] = entry->record.span().subspan(segment.offset, segment.bytes);
        }
      }
    }
    order_.reserve(description.experts_per_layer);
  }
  // In that memory.
  MemoryProvider(const StoreReader& store, Allocator& memory)
      : MemoryProvider(
            store, [](LayerId) { return kReferencePrecision; }, memory) {}
  ~MemoryProvider() override { EXPECT_EQ(pins_, 0) << "a handle outlived its use"; }

  // Experts of a layer arrive in ascending order, or shuffled by this seed.
  void ShuffleWith(uint64_t seed) { random_.emplace(seed); }
  // From now on it tells where all experts lie.
  void LetStepsBeWhole() {
    const size_t layers = description_.moe_layers.size(), experts = description_.experts_per_layer;
    table_ = memory_.Allocate(layers * kExpertParts * experts * sizeof(const std::byte*)).value();
    whole_ = {reinterpret_cast<const std::byte**>(table_.data()), layers * kExpertParts * experts};
    for (size_t i = 0; i < whole_.size(); ++i) {
      const Expert& expert =
          *experts_.at({description_.moe_layers[i / experts / kExpertParts], static_cast<int32_t>(i % experts)});
      const auto part = expert.parts.find(static_cast<ExpertPart>(i / experts % kExpertParts));
      whole_[i] = part == expert.parts.end() ? nullptr : part->second.data();
    }
  }
  ExpertTable WhereAllLie() override { return whole_; }
  void OnStep(StepWay way) override { ++steps[static_cast<size_t>(way)]; }
  void OnComputed(const LayerRouting& routing) override {
    if (on_begin) on_begin(routing);
  }
  std::array<int, kStepWays> steps{};
  void FailWith(std::optional<ExpertFault> fault) { fault_ = std::move(fault); }

  // Called when set.
  std::function<void(SequenceId, TokenId)> on_token;
  std::function<void(SequenceId, LayerId, std::span<const float>)> on_gate_input;
  std::function<void(SequenceId, LayerId, std::span<const float>)> on_gate_preview;
  std::function<void(LayerId, std::span<float>)> mask_router;
  std::function<void(const LayerRouting&)> on_begin;
  // From now on, which it outlives, `experts` gets every layer's choices, by token.
  void RecordExperts(std::vector<std::vector<std::vector<int32_t>>>& experts) {
    on_begin = [&experts](const LayerRouting& routing) {
      auto& layer = experts.emplace_back();
      for (const TokenRouting& token : routing.tokens) {
        auto& slots = layer.emplace_back();
        for (const ExpertChoice& choice : token.choices) slots.push_back(choice.expert);
      }
    };
  }
  int token_gate_inputs = 0;
  int previewed = 0;
  std::array<const ReadyEvent*, kExpertParts> ready = {};  // of each part
  int pins() const { return pins_; }

  void OnSequenceStart(SequenceId) override {}
  void OnSequenceEnd(SequenceId) override {}
  void OnToken(SequenceId sequence, TokenId token) override {
    if (on_token) on_token(sequence, token);
  }
  void OnGateInput(SequenceId sequence, LayerId layer, std::span<const float> hidden) override {
    if (on_gate_input) on_gate_input(sequence, layer, hidden);
  }
  void OnTokenGateInput(SequenceId, LayerId, std::span<const float>) override { ++token_gate_inputs; }
  bool WantsPreview() override { return on_gate_preview != nullptr; }
  void OnGatePreview(SequenceId sequence, LayerId next, std::span<const float> hidden) override {
    on_gate_preview(sequence, next, hidden);
  }
  void OnPreviewed() override { ++previewed; }
  bool masks_router() const override { return mask_router != nullptr; }
  void MaskRouter(LayerId layer, std::span<const float>, std::span<float> logits, TokenRouting& token) override {
    if (mask_router) mask_router(layer, logits);
    const auto masked = [&](const ExpertChoice& choice) { return logits[choice.expert] == -INFINITY; };
    token.masked = static_cast<int>(std::ranges::count_if(token.choices, masked));
  }

  ActivationLender* lender() override { return this; }
  // Every loan is full of bytes that are no numbers.
  absl::StatusOr<std::span<std::byte>> Lend(uint64_t bytes) override {
    loans += bytes > 0;
    if (refuse_loans && bytes > 0) return ResourceExhausted("injected");
    if (loan_.size() < bytes) loan_ = memory_.Allocate(bytes).value();
    std::ranges::fill(loan_.span(), std::byte{0xff});
    return loan_.span().first(bytes);
  }
  int loans = 0;
  bool refuse_loans = false;

  void Begin(const LayerRouting& routing) override {
    EXPECT_TRUE(order_.empty()) << "Begin before Next was empty";
    if (on_begin) on_begin(routing);
    layer_ = routing.layer;
    for (const TokenRouting& token : routing.tokens) {
      for (const ExpertChoice& choice : token.choices) {
        if (std::find(order_.begin(), order_.end(), choice.expert) == order_.end()) order_.push_back(choice.expert);
      }
    }
    std::sort(order_.begin(), order_.end(), std::greater<>());
    if (random_) std::shuffle(order_.begin(), order_.end(), *random_);
  }

  std::optional<ReadyExpert> Next() override {
    if (order_.empty()) return std::nullopt;
    ReadyExpert ready;
    ready.expert = order_.back();
    ready.precision = precision_of_(layer_);
    order_.pop_back();
    Expert& expert = *experts_.at({layer_, ready.expert});
    if (fault_ && fault_->key == expert.key && !fault_->part) {
      ready.status = fault_->status;
      return ready;
    }
    ++pins_;
    ready.handle = ExpertHandle(&expert);
    return ready;
  }

  // Shuffled: at random, so that experts meet in groups of any size.
  std::optional<ReadyExpert> NextReady() override {
    if (random_ && (*random_)() % 4 == 0) return std::nullopt;
    return Next();
  }

  SequenceCounters sequence_counters(SequenceId) const override { return {}; }

 private:
  struct Expert final : internal::PinnedExpert {
    Expert(MemoryProvider& provider, ExpertKey key, Buffer record) : provider(provider), key(key), record(std::move(record)) {}
    absl::StatusOr<PartBytes> WaitPart(ExpertPart part) override {
      const std::optional<ExpertFault>& fault = provider.fault_;
      if (fault && fault->key == key && fault->part && part >= *fault->part) return fault->status;
      return PartBytes{.bytes = parts.at(part), .ready = provider.ready[static_cast<size_t>(part)]};
    }
    bool HasPart(ExpertPart) const override { return !provider.random_ || (*provider.random_)() % 2 == 0; }
    void Unpin() override { --provider.pins_; }

    MemoryProvider& provider;
    const ExpertKey key;
    Buffer record;
    std::map<ExpertPart, std::span<const std::byte>> parts;
  };

  const std::function<Precision(LayerId)> precision_of_;
  Allocator& memory_;
  const StoreDescription& description_;
  std::map<ExpertKey, std::unique_ptr<Expert>> experts_;
  std::optional<std::mt19937_64> random_;
  std::optional<ExpertFault> fault_;
  Buffer loan_;
  Buffer table_;
  std::span<const std::byte*> whole_;
  LayerId layer_;
  std::vector<int32_t> order_;  // the next one last
  int pins_ = 0;
};

}  // namespace moed
