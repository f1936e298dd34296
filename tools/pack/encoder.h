// Checkpoint tensors to store bytes, a few panels at a time on several threads, matrix after matrix without a pause between them;
// never a whole matrix in memory.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/base/executor.h"
#include "core/model/family.h"
#include "core/quant/encoding.h"
#include "tools/pack/encoding_error.h"
#include "tools/pack/source_tensor.h"

namespace moed {

// What becomes of a matrix.
struct MatrixTarget {
  Encoding encoding;
  // Of a source that has blocks: these blocks, their codes and scales unchanged, in the layout of encoding.format.
  bool keeps_blocks = false;
};

struct MatrixJob {
  const SourceTensor* source = nullptr;  // (rows, cols)
  std::vector<MatrixTarget> targets;
  const ErrorFeedback* feedback = nullptr;  // of its columns; null: nothing is known of its inputs
};

// The bytes do not depend on the number of threads. Not synchronised.
class TensorEncoder {
 public:
  // `index` into the targets asked for; the chunks of one target come in order. Called by one thread at a time, whichever it is.
  using Sink = absl::FunctionRef<absl::Status(size_t index, std::span<const std::byte> bytes)>;
  // `job` by job. `error`: of the first panel of these, nothing where blocks are kept.
  using JobSink =
      absl::FunctionRef<absl::Status(size_t job, size_t index, std::span<const std::byte> bytes, const EncodingError& error)>;

  explicit TensorEncoder(Executor& executor) : executor_(executor) {}

  // Reads every row once and packs it as each target says, while what is packed is taken.
  // Errors name file and tensor, and those of weights are told apart (unpackable.h); an error of the sink ends it and is returned
  // as it is.
  absl::Status EncodeMatrices(std::span<const MatrixJob> jobs, JobSink sink);
  // `source` is a vector, or the rows of one, one after the other: the numbers that `spelling` means, as float32. A number that
  // is not finite is an error.
  absl::Status EncodeVector(const SourceTensor& source, Sink sink, Spelling spelling = Spelling::kPlain,
                            const HeadFactor& factor = {});

 private:
  // Some panels of a matrix on their way; one thread at a time.
  struct Chunk {
    int first_row = 0;
    int rows = 0;
    std::vector<std::byte> raw;
    std::vector<float> weights;                  // (rows, cols)
    std::vector<std::vector<std::byte>> packed;  // by target
    std::vector<EncodingError> errors;           // by target
    absl::Status status;
  };
  static void Encode(const MatrixJob& job, Chunk& chunk);

  Executor& executor_;
  std::vector<Chunk> chunks_;  // by slot; kept from call to call for their memory
};

}  // namespace moed
