// Choices of experts and tables of their matrices, as the host names them, and where kernels have them: in the same place where
// memory is unified, else among the descriptions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/kernels/cuda_operations.h"
#include "core/kernels/descriptions.h"

namespace moed::cuda {

class ExpertChoices {
 public:
  ExpertChoices(Descriptions& descriptions, bool unified) : descriptions_(descriptions), unified_(unified) {}

  // The router's operation. After the next wait the host finds what it chose at `choices`.
  RouteOperation RouteOf(const RouterShape& shape, float* logits, int rows, ExpertChoice* choices);
  // Where kernels behind the routers read these: what one router chooses, or what the host has. If several write them it is the
  // host's place.
  const ExpertChoice* ChoicesOf(std::span<const ExpertChoice> choices);
  // Described once for as long as tables are not forgotten.
  const unsigned char* const* MatricesOf(std::span<const std::byte* const> matrices);

  // The host may write others at the same place.
  void ForgetTables() { tables_.clear(); }
  // All that was launched has run: the host has its choices, and may change them.
  void Clear() { routed_.clear(); }

 private:
  struct Routed {
    std::span<const ExpertChoice> on_host;
    const ExpertChoice* on_device;
  };
  struct Table {
    const std::byte* const* on_host;
    const unsigned char* const* on_device;
  };

  Descriptions& descriptions_;
  const bool unified_;
  std::vector<Routed> routed_;  // by operations that may still run
  std::vector<Table> tables_;
};

}  // namespace moed::cuda
