#include "core/model/position_bias.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/base/status.h"
#include "core/model/family.h"
#include "core/model/scratch.h"
#include "core/store/store.h"

namespace moed {

int PositionBucket(int ahead, bool both_sides, const EncoderShape& shape) {
  const int buckets = both_sides ? shape.position_buckets / 2 : shape.position_buckets;
  const int first = both_sides && ahead > 0 ? buckets : 0;
  const int distance = both_sides ? std::abs(ahead) : std::max(-ahead, 0);
  const int exact = buckets / 2;  // distances that have buckets of their own
  if (distance < exact) return first + distance;
  const float ratio = static_cast<float>(distance) / static_cast<float>(exact);
  const auto widest = static_cast<float>(std::log(static_cast<double>(shape.most_distance) / exact));
  const float logarithm = std::log(ratio) / widest * static_cast<float>(buckets - exact);
  return first + std::min(exact + static_cast<int>(logarithm), buckets - 1);
}

std::vector<float> PositionBiasTable(std::span<const float> numbers, int heads, bool both_sides, const EncoderShape& shape) {
  const int reach = shape.most_distance;
  std::vector<float> table;
  table.reserve(static_cast<size_t>(heads) * shape.distances());
  for (int head = 0; head < heads; ++head) {
    for (int ahead = -reach; ahead <= reach; ++ahead) {
      table.push_back(numbers[static_cast<size_t>(PositionBucket(ahead, both_sides, shape)) * heads + head]);
    }
  }
  return table;
}

absl::Status FillPositionBiases(const StoreReader& store, const ModelSpec& spec, ComputeBackend& backend, Scratch& scratch) {
  const EncoderShape& shape = *spec.encoder;
  BackendMemory& memory = backend.memory();
  std::vector<float> numbers(static_cast<size_t>(shape.position_buckets) * spec.heads);
  MOED_ASSIGN_OR_RETURN(const Buffer staging, memory.shared().Allocate(scratch.encoder_bias.size_bytes()));
  for (const bool of_encoder : {true, false}) {
    MOED_ASSIGN_OR_RETURN(const TensorInfo* tensor, store.FindTensor(of_encoder ? kEncoderBias : kDecoderBias));
    MOED_RETURN_IF_ERROR(store.ReadTensor(*tensor, std::as_writable_bytes(std::span(numbers))));
    const std::vector<float> table = PositionBiasTable(numbers, spec.heads, of_encoder, shape);
    std::ranges::copy(std::as_bytes(std::span(table)), staging.span().begin());
    const std::span<float> to = of_encoder ? scratch.encoder_bias : scratch.decoder_bias;
    memory.Copy(reinterpret_cast<std::byte*>(to.data()), staging.data(), to.size_bytes());
    MOED_RETURN_IF_ERROR(backend.Fence());
  }
  return absl::OkStatus();
}

}  // namespace moed
