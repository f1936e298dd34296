// One matrix encoded as the packer encodes many.
#pragma once

#include <span>

#include "core/base/executor.h"
#include "tools/pack/encoder.h"

namespace moed {

inline absl::Status EncodeMatrix(Executor& executor, const SourceTensor& source, std::span<const MatrixTarget> targets,
                                 TensorEncoder::Sink sink) {
  const MatrixJob job{&source, {targets.begin(), targets.end()}, nullptr};
  const auto take = [&](size_t, size_t index, std::span<const std::byte> bytes, const EncodingError&) {
    return sink(index, bytes);
  };
  return TensorEncoder(executor).EncodeMatrices({&job, 1}, take);
}

}  // namespace moed
