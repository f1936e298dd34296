#include "server/plan/token_products.h"

#include <algorithm>
#include <map>
#include <random>
#include <span>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/median.h"
#include "core/base/status.h"
#include "core/store/layout.h"

namespace moed {
namespace {

bool ReadByToken(const TensorInfo& tensor, const ModelSpec& spec) { return tensor.name != "embed" || spec.tied_embeddings; }

uint64_t LargestPanelBytes(const StoreDescription& store) {
  uint64_t most = 0;
  for (const TensorInfo& tensor : store.trunk) {
    if (!tensor.vector) most = std::max<uint64_t>(most, PackedBytes(tensor.format, kPanelRows, tensor.cols));
  }
  return most;
}

// Memory in the place of weights, taken round and round.
class Weights {
 public:
  static absl::StatusOr<Weights> Create(ComputeBackend& backend, uint64_t bytes) {
    MOED_ASSIGN_OR_RETURN(Buffer memory, backend.memory().shared().Allocate(std::max<uint64_t>(bytes, kPageBytes)));
    // Numbers of about one in every format with an exponent: no kernel meets denormal ones.
    auto* words = reinterpret_cast<uint32_t*>(memory.data());
    for (size_t i = 0; i < memory.size() / sizeof *words; ++i) {
      words[i] = (static_cast<uint32_t>(i) * 2654435761u & 0x03ff03ffu) | 0x3c003c00u;
    }
    return Weights(std::move(memory));
  }
  uint64_t bytes() const { return memory_.size(); }
  void MoveTo(uint64_t offset) { next_ = RoundUp(offset, kPageBytes); }
  const std::byte* Next(uint64_t bytes) {
    if (next_ + bytes > memory_.size()) next_ = 0;
    const std::byte* at = memory_.data() + next_;
    next_ += RoundUp(bytes, kTensorAlignment);
    return at;
  }

 private:
  explicit Weights(Buffer memory) : memory_(std::move(memory)) {}
  Buffer memory_;
  uint64_t next_ = 0;
};

// Prepared inputs by their numbers of columns, and room for outputs.
class Operands {
 public:
  explicit Operands(ComputeBackend& backend) : backend_(backend) {}

  absl::StatusOr<const Activations*> Input(int cols) {
    const auto known = inputs_.find(cols);
    if (known != inputs_.end()) return &known->second.activations;
    Prepared prepared;
    Allocator& memory = backend_.memory().shared();
    MOED_ASSIGN_OR_RETURN(prepared.storage, memory.Allocate(ActivationBytes(1, cols)));
    MOED_ASSIGN_OR_RETURN(prepared.values, memory.Allocate(static_cast<size_t>(cols) * sizeof(float)));
    Prepared& kept = inputs_.emplace(cols, std::move(prepared)).first->second;
    auto* values = reinterpret_cast<float*>(kept.values.data());
    for (int i = 0; i < cols; ++i) values[i] = static_cast<float>(i % 17) / 17 - 0.5f;
    kept.activations = backend_.Prepare(values, 1, cols, cols, kAllForms, kept.storage.span());
    return &kept.activations;
  }
  // Before Output: this many numbers.
  absl::Status MakeRoom(size_t outputs) {
    MOED_ASSIGN_OR_RETURN(output_, backend_.memory().shared().Allocate(outputs * sizeof(float)));
    return absl::OkStatus();
  }
  float* Output(size_t first) { return reinterpret_cast<float*>(output_.data()) + first; }

 private:
  struct Prepared {
    Buffer values;
    Buffer storage;
    Activations activations;
  };
  ComputeBackend& backend_;
  std::map<int, Prepared> inputs_;
  Buffer output_;
};

struct Matrix {
  FormatId format;
  int rows;
  int cols;
};

class TokenProducts {
 public:
  static absl::StatusOr<TokenProducts> Create(const StoreDescription& store, const ModelSpec& spec, ComputeBackend& backend,
                                              uint64_t memory_bytes) {
    const uint64_t experts =
        std::max(std::min(AllRecordBytes(store, kReferencePrecision), memory_bytes / 2), LargestRecordBytes(store));
    const uint64_t trunk = std::max(std::min(store.trunk_bytes, memory_bytes / 2), LargestPanelBytes(store));
    MOED_ASSIGN_OR_RETURN(Weights trunk_weights, Weights::Create(backend, trunk));
    MOED_ASSIGN_OR_RETURN(Weights expert_weights, Weights::Create(backend, experts));
    TokenProducts products(backend, std::move(trunk_weights), std::move(expert_weights), spec.top_k);
    for (const TensorInfo& tensor : store.trunk) {
      if (!tensor.vector && ReadByToken(tensor, spec)) products.AddTrunk({tensor.format, tensor.rows, tensor.cols});
    }
    for (const ExpertLayout& layer : store.precisions[kReferencePrecision].layers) {
      products.layers_.push_back(&layer);
    }
    MOED_RETURN_IF_ERROR(products.MakeRoom());
    return products;
  }

  absl::Status Run() {
    trunk_.MoveTo(0);
    for (const Matrix& matrix : matrices_) {
      const MatMulJob job = Job(matrix, trunk_, 0);
      backend_->MatMul({&job, 1});
    }
    for (const ExpertLayout* layer : layers_) {
      // Anywhere, as chosen experts lie in the cache.
      experts_.MoveTo(random_() % std::max<uint64_t>(experts_.bytes(), 1));
      const std::span<const ExpertSegment> segments = layer->segments;  // down is the last
      RunSegments(segments.first(segments.size() - 1));
      RunSegments(segments.last(1));
    }
    return backend_->Fence();
  }

 private:
  TokenProducts(ComputeBackend& backend, Weights trunk, Weights experts, int top_k)
      : backend_(&backend), trunk_(std::move(trunk)), experts_(std::move(experts)), operands_(backend), top_k_(top_k) {}

  // In pieces that fit the memory that stands for them.
  void AddTrunk(Matrix matrix) {
    const uint64_t panel = std::max<uint64_t>(PackedBytes(matrix.format, kPanelRows, matrix.cols), 1);
    const auto most = static_cast<int>(std::clamp<uint64_t>(trunk_.bytes() / panel, 1, 1 << 20)) * kPanelRows;
    for (; matrix.rows > 0; matrix.rows -= most) matrices_.push_back({matrix.format, std::min(matrix.rows, most), matrix.cols});
  }

  // Everything that Run will ask for, so that it allocates nothing.
  absl::Status MakeRoom() {
    int outputs = 0;
    for (const Matrix& matrix : matrices_) {
      MOED_RETURN_IF_ERROR(operands_.Input(matrix.cols).status());
      outputs = std::max(outputs, matrix.rows);
    }
    for (const ExpertLayout* layer : layers_) {
      for (const ExpertSegment& segment : layer->segments) {
        MOED_RETURN_IF_ERROR(operands_.Input(segment.cols).status());
        outputs = std::max(outputs, 2 * top_k_ * segment.rows);
      }
    }
    return operands_.MakeRoom(static_cast<size_t>(outputs));
  }

  MatMulJob Job(const Matrix& matrix, Weights& weights, size_t output) {
    return {{matrix.format, matrix.rows, matrix.cols, weights.Next(PackedBytes(matrix.format, matrix.rows, matrix.cols))},
            *operands_.Input(matrix.cols),
            operands_.Output(output),
            matrix.rows};
  }

  // Of all chosen experts at once, as the decoder does with those that are there.
  void RunSegments(std::span<const ExpertSegment> segments) {
    jobs_.clear();
    size_t output = 0;
    for (int expert = 0; expert < top_k_; ++expert) {
      for (const ExpertSegment& segment : segments) {
        jobs_.push_back(Job({segment.format, segment.rows, segment.cols}, experts_, output));
        output += static_cast<size_t>(segment.rows);
      }
    }
    backend_->MatMul(jobs_);
  }

  ComputeBackend* backend_;
  Weights trunk_;
  Weights experts_;
  Operands operands_;
  int top_k_;
  std::vector<Matrix> matrices_;
  std::vector<const ExpertLayout*> layers_;
  std::vector<MatMulJob> jobs_;
  std::mt19937_64 random_{1};
};

}  // namespace

TokenBytes BytesOfToken(const StoreDescription& store, const ModelSpec& spec) {
  TokenBytes bytes;
  for (const TensorInfo& tensor : store.trunk) bytes.trunk += ReadByToken(tensor, spec) ? tensor.bytes : 0;
  for (const ExpertLayout& layer : store.precisions[kReferencePrecision].layers) {
    for (const ExpertSegment& segment : layer.segments) bytes.experts += segment.bytes * static_cast<uint64_t>(spec.top_k);
  }
  return bytes;
}

absl::StatusOr<double> MeasureTokenProducts(const StoreDescription& store, const ModelSpec& spec, ComputeBackend& backend,
                                            const ProductLimits& limits, const Clock& clock) {
  MOED_ASSIGN_OR_RETURN(TokenProducts products, TokenProducts::Create(store, spec, backend, limits.memory_bytes));
  MOED_RETURN_IF_ERROR(products.Run());  // pages of outputs, caches
  std::vector<double> seconds;
  const int64_t begin = clock.NowNanos();
  do {
    const int64_t start = clock.NowNanos();
    MOED_RETURN_IF_ERROR(products.Run());
    seconds.push_back(SecondsBetween(start, clock.NowNanos()));
  } while (SecondsBetween(begin, clock.NowNanos()) < limits.seconds);
  return Median(seconds);
}

}  // namespace moed
