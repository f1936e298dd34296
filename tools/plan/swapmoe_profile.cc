#include "tools/plan/swapmoe_profile.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "core/base/executor.h"
#include "core/base/status.h"
#include "core/io/read_backend.h"
#include "core/kernels/backend.h"
#include "tools/pack/norms_of_experts.h"

namespace moed {
namespace {

constexpr size_t kProfiled = 32;  // experts
constexpr int kRepeats = 8;       // of each product, the first of which is not counted

absl::Status ReadRecord(ReadBackend& reads, const StoreReader& store, const CachedKey& key, std::span<std::byte> out,
                        SegmentDecoder& decoder) {
  absl::Notification done;
  absl::Status status;
  reads.Submit({store.RecordOffset(key), out.last(store.stored_bytes(key)), [&](absl::Status outcome) {
                  status = std::move(outcome);
                  done.Notify();
                }});
  done.WaitForNotification();
  MOED_RETURN_IF_ERROR(status);
  return store.Decode(key, 0, store.expert_layout(key).segments.size(), out, decoder);
}

CachedKey KeyAt(const StoreDescription& store, size_t expert) {
  const auto experts = static_cast<size_t>(store.experts_per_layer);
  return {store.moe_layers[expert / experts], static_cast<int32_t>(expert % experts), kReferencePrecision};
}

absl::StatusOr<double> SecondsOfProducts(ComputeBackend& backend, const ExpertLayout& layout, const std::byte* record) {
  int widest = 0;
  for (const ExpertSegment& segment : layout.segments) widest = std::max({widest, segment.rows, segment.cols});
  Allocator& memory = backend.memory().shared();
  const size_t floats = static_cast<size_t>(widest), bytes = floats * sizeof(float);
  MOED_ASSIGN_OR_RETURN(const Buffer input, memory.Allocate(bytes));
  MOED_ASSIGN_OR_RETURN(const Buffer output, memory.Allocate(bytes));
  MOED_ASSIGN_OR_RETURN(const Buffer storage, memory.Allocate(ActivationBytes(1, widest)));
  auto* x = reinterpret_cast<float*>(input.data());
  std::fill_n(x, floats, .25f);
  int64_t begin = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    if (repeat == 1) begin = Clock::Real().NowNanos();
    for (const ExpertSegment& segment : layout.segments) {
      const Activations prepared = backend.Prepare(x, 1, segment.cols, segment.cols, kAllForms, storage.span());
      const MatMulJob job{{segment.format, segment.rows, segment.cols, record + segment.offset},
                          &prepared,
                          reinterpret_cast<float*>(output.data()),
                          segment.rows};
      backend.MatMul({&job, 1});
    }
    MOED_RETURN_IF_ERROR(backend.Fence());
  }
  return SecondsBetween(begin, Clock::Real().NowNanos()) / (kRepeats - 1);
}

}  // namespace

absl::StatusOr<ExpertProfile> ProfileExperts(const StoreReader& store, int threads) {
  const StoreDescription& description = store.description();
  const uint64_t largest = store.largest_expert_bytes(kReferencePrecision);
  const size_t experts = description.moe_layers.size() * static_cast<size_t>(description.experts_per_layer);
  const size_t count = std::min(experts, kProfiled);
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<ReadBackend> reads, OpenReadBackend("auto", store.path(), {}));
  const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<ComputeBackend> backend, MakeComputeBackend("auto", *executor));
  MOED_ASSIGN_OR_RETURN(const Buffer record, backend->memory().shared().Allocate(largest));
  ExpertProfile profile{.bytes = largest};
  SegmentDecoder decoder;
  for (size_t i = 0; i < count; ++i) {
    const CachedKey key = KeyAt(description, i * experts / count);
    const ExpertLayout& layout = store.expert_layout(key);
    const int64_t begin = Clock::Real().NowNanos();
    MOED_RETURN_IF_ERROR(ReadRecord(*reads, store, key, record.span().first(layout.record_bytes), decoder));
    profile.load_seconds += SecondsBetween(begin, Clock::Real().NowNanos()) / static_cast<double>(count);
    MOED_ASSIGN_OR_RETURN(const double seconds, SecondsOfProducts(*backend, layout, record.data()));
    profile.compute_seconds += seconds / static_cast<double>(count);
  }
  return profile;
}

absl::StatusOr<std::vector<float>> ExpertNorms(const StoreReader& store, absl::FunctionRef<bool(uint64_t done)> progress) {
  const StoreDescription& description = store.description();
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, OpenBuffered(store.path()));
  SegmentDecoder decoder;
  std::vector<std::byte> record;
  std::vector<float> norms(description.moe_layers.size() * static_cast<size_t>(description.experts_per_layer)), row;
  for (size_t expert = 0; expert < norms.size(); ++expert) {
    const CachedKey key = KeyAt(description, expert);
    const ExpertLayout& layout = store.expert_layout(key);
    record.resize(layout.record_bytes);
    MOED_RETURN_IF_ERROR(file->ReadAt(store.RecordOffset(key), std::span(record).last(store.stored_bytes(key))));
    MOED_RETURN_IF_ERROR(store.Decode(key, 0, layout.segments.size(), record, decoder));
    for (const ExpertSegment& segment : layout.segments) {
      MOED_RETURN_IF_ERROR(store.VerifySegment(key, segment.part, std::span(record).subspan(segment.offset, segment.bytes)));
    }
    double squares = 0;
    for (const ExpertSegment& segment : layout.segments) {
      const auto packed = std::span(record).subspan(segment.offset, segment.bytes);
      squares += SumOfSquares(segment.format, packed, segment.rows, segment.cols, row);
    }
    norms[expert] = static_cast<float>(std::sqrt(squares));
    if (!progress(expert + 1)) return absl::CancelledError("interrupted");
  }
  return norms;
}

}  // namespace moed
