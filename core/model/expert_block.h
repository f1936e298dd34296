// The routed experts of a layer, computed as they become ready. Experts of few rows are taken several at a time, so that a
// token's experts are two parallel loops together and not two each.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "core/expert/provider.h"
#include "core/model/step.h"
#include "core/model/weights.h"

namespace moed {

class ProcessorExperts;

class ExpertBlock {
 public:
  explicit ExpertBlock(Step& step) : step_(step) {}

  // After provider.Begin: the outputs of all chosen experts, to scratch.slots. `input`: the prepared input of all rows. Chunks
  // whose tokens chose an expert that could not be read get its error.
  // `beside` computes what is handed out for the processor; it may be null where nothing is.
  void Run(LayerId layer, const ExpertBiases& biases, const Activations& input, ExpertProvider& provider,
           ProcessorExperts* beside);
  // After a Fence: unpins experts whose operations were still enqueued when their group ended, and those of a group that an
  // exception has left.
  void Release();

  // What Run is made of, one group after the other: as many as fit, then what they put out.
  bool Fits(const ReadyExpert& ready) const;
  void Add(ReadyExpert ready);
  // Returns the bytes of the experts.
  uint64_t ComputeGroup(LayerId layer, const Activations& input);
  // The choices of an expert, in scratch.expert_slots.
  std::span<const int32_t> SlotsOf(int32_t expert) const;

 private:
  // One expert of a group; rows [first_row, first_row + rows) of gate, up and what is made of them.
  struct Member {
    ReadyExpert ready;
    std::span<const int32_t> slots;  // of scratch.expert_slots
    std::array<PartBytes, kExpertParts> parts;
    const ReadyEvent* awaited = nullptr;  // the last
    int first_row = 0;
    Activations input;
    const PartBytes& part(ExpertPart part) const { return parts[static_cast<size_t>(part)]; }
    int rows() const { return static_cast<int>(slots.size()); }
    // A token chooses an expert once.
    bool consecutive(int top_k) const { return slots.back() / top_k - slots.front() / top_k + 1 == rows(); }
  };
  std::span<Member> members() { return std::span(members_).first(count_); }

  std::optional<ReadyExpert> WaitForNext(ExpertProvider& provider);
  void ComputeRows(LayerId layer, const Activations& input);
  void TellInputs(LayerId layer, const Activations& inner);
  // Waits for the part.
  absl::Status Take(Member& member, ExpertPart part);
  void DropUnreadable(ExpertPart part);
  // What the backend is given: what it runs from here on runs when they are there. Parts that come together are one wait, since
  // a wait ends the list of launches that a backend gathers.
  const std::byte* Weights(Member& member, ExpertPart part);
  void GatherInputs(const Activations& input);
  // Of gate and up, or of up: the input of down.
  Activations Inner(LayerId layer);
  // Those whose matrix has arrived first, together.
  void Down(LayerId layer, const Activations& inner);
  void DownOf(LayerId layer, std::span<Member> some, const Activations& inner);

  // The expert's row of `biases` (experts, width), which may be null.
  static const float* BiasOf(const float* biases, const Member& member, int width);
  void Fail(std::span<const int32_t> slots, const absl::Status& status);

  Step& step_;
  std::array<Member, kGroupRows> members_;
  size_t count_ = 0;
  int rows_ = 0;         // of all members
  ExpertBiases biases_;  // the layer's
  std::vector<ExpertHandle> in_flight_;
};

}  // namespace moed
