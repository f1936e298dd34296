#include "tools/pack/packer.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <utility>

#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/store/expert_norms.h"
#include "tools/pack/encoder.h"
#include "tools/pack/layer_feedback.h"
#include "tools/pack/norms_of_experts.h"
#include "tools/terminal/amount.h"
#include "tools/terminal/interrupt.h"

namespace moed {
namespace {

class Packer {
 public:
  Packer(const PackPlan& plan, StoreWriter& writer, Executor& executor, Progress& progress, const ExpertMoments* moments)
      : plan_(plan),
        moments_(moments),
        writer_(writer),
        executor_(executor),
        encoder_(executor),
        progress_(progress),
        done_bytes_(writer.resumed_bytes()) {
    errors_.experts.resize(plan.description.precisions.size());
  }

  absl::Status Run() {
    MOED_RETURN_IF_ERROR(PackTrunk());
    for (size_t layer = 0; layer < plan_.description.moe_layers.size(); ++layer) MOED_RETURN_IF_ERROR(PackLayer(layer));
    for (size_t i = 0; i < plan_.trunk.size(); ++i) {
      if (!writer_.HasTensor(i)) MOED_RETURN_IF_ERROR(AppendTensor(i, std::as_bytes(std::span(std::as_const(norms_)))));
    }
    return writer_.Finish();
  }
  const EncodingErrors& errors() const { return errors_; }

 private:
  bool IsNorms(size_t tensor) const { return plan_.description.trunk[tensor].name == kExpertNorms; }

  absl::Status AppendTensor(size_t tensor, std::span<const std::byte> bytes) {
    MOED_RETURN_IF_ERROR(writer_.AppendTensor(tensor, bytes));
    return Advance(bytes.size());
  }

  // All of it but the norms, which are made last.
  absl::Status PackTrunk() {
    std::vector<size_t> tensors;
    std::vector<MatrixJob> jobs;
    for (size_t i = 0; i < plan_.trunk.size(); ++i) {
      if (writer_.HasTensor(i) || IsNorms(i)) continue;
      if (plan_.description.trunk[i].vector) {
        MOED_RETURN_IF_ERROR(PackVector(i));
        continue;
      }
      tensors.push_back(i);
      jobs.push_back({plan_.trunk[i], {plan_.trunk_targets[i]}, nullptr});
    }
    return encoder_.EncodeMatrices(jobs, [&](size_t job, size_t, std::span<const std::byte> bytes, const EncodingError& error) {
      errors_.trunk.Add(error);
      return AppendTensor(tensors[job], bytes);
    });
  }

  absl::Status PackVector(size_t tensor) {
    if (const SourceTensor* source = plan_.trunk[tensor]; source != nullptr) {
      const auto append = [&](size_t, std::span<const std::byte> bytes) { return AppendTensor(tensor, bytes); };
      return encoder_.EncodeVector(*source, append, plan_.trunk_spellings[tensor], plan_.trunk_head_factors[tensor]);
    }
    const std::vector<float> frequencies = InverseFrequencies(plan_.spec);
    return AppendTensor(tensor, std::as_bytes(std::span(frequencies)));
  }

  // A part of an expert, at every precision that is not there yet.
  struct PartKeys {
    ExpertPart part;
    std::vector<CachedKey> keys;  // by target of its job
  };

  absl::Status PackLayer(size_t moe_layer) {
    std::vector<PartKeys> parts;
    std::vector<MatrixJob> jobs;
    for (int expert = 0; expert < plan_.description.experts_per_layer; ++expert) {
      for (const ExpertPart part : plan_.parts) AddJob(moe_layer, expert, part, parts, jobs);
    }
    const LayerFeedback feedback(plan_, jobs.empty() ? nullptr : moments_, moe_layer, executor_);
    for (size_t i = 0; i < jobs.size(); ++i) jobs[i].feedback = feedback.Of(parts[i].keys.front().expert, parts[i].part);
    const auto append = [&](size_t job, size_t index, std::span<const std::byte> bytes, const EncodingError& error) {
      const auto& [part, keys] = parts[job];
      errors_.experts[static_cast<size_t>(keys[index].precision)][static_cast<size_t>(part)].Add(error);
      MOED_RETURN_IF_ERROR(writer_.AppendExpert(keys[index], part, bytes));
      return Advance(bytes.size());
    };
    MOED_RETURN_IF_ERROR(encoder_.EncodeMatrices(jobs, append));
    return AddNorms(moe_layer);
  }

  void AddJob(size_t moe_layer, int expert, ExpertPart part, std::vector<PartKeys>& parts, std::vector<MatrixJob>& jobs) const {
    PartKeys missing{part, {}};
    MatrixJob job{&plan_.ExpertSource(moe_layer, expert, part), {}, nullptr};
    for (size_t p = 0; p < plan_.description.precisions.size(); ++p) {
      const CachedKey key{plan_.description.moe_layers[moe_layer], expert, static_cast<Precision>(p)};
      if (writer_.HasExpert(key, part)) continue;
      missing.keys.push_back(key);
      job.targets.push_back(plan_.ExpertTarget(p, moe_layer, part));
    }
    if (missing.keys.empty()) return;
    parts.push_back(std::move(missing));
    jobs.push_back(std::move(job));
  }

  // While the store lacks them. Of the layer's experts as they were written, whenever that was: nothing has to be kept of a pack
  // that is taken up again. Most often what was written is still in memory.
  absl::Status AddNorms(size_t moe_layer) {
    if (writer_.HasTensor(plan_.trunk.size() - 1)) return absl::OkStatus();
    const int experts = plan_.description.experts_per_layer;
    const size_t first = norms_.size();
    norms_.resize(first + static_cast<size_t>(experts));
    std::vector<absl::Status> statuses(static_cast<size_t>(experts));
    executor_.ParallelFor(experts, 1, [&](int begin, int end) {
      for (int i = begin; i < end && !Interrupted(); ++i) statuses[i] = NormOf(moe_layer, i, norms_[first + i]);
    });
    for (const absl::Status& status : statuses) MOED_RETURN_IF_ERROR(status);
    return Interrupted() ? absl::CancelledError("interrupted") : absl::OkStatus();
  }

  absl::Status NormOf(size_t moe_layer, int expert, float& norm) const {
    const StoreDescription& description = plan_.description;
    const CachedKey key{description.moe_layers[moe_layer], expert, kReferencePrecision};
    const ExpertLayout& layout = description.precisions[kReferencePrecision].layers[moe_layer];
    std::vector<std::byte> packed;
    std::vector<float> row;
    double squares = 0;
    for (const ExpertSegment& segment : layout.segments) {
      packed.resize(segment.bytes);
      MOED_RETURN_IF_ERROR(writer_.ReadBack(key, segment.part, packed));
      squares += SumOfSquares(segment.format, packed, segment.rows, segment.cols, row);
    }
    norm = static_cast<float>(std::sqrt(squares));
    return absl::OkStatus();
  }

  absl::Status Advance(uint64_t bytes) {
    done_bytes_ += bytes;
    progress_.Update(done_bytes_);
    return Interrupted() ? absl::CancelledError("interrupted") : absl::OkStatus();
  }

  const PackPlan& plan_;
  const ExpertMoments* const moments_;
  StoreWriter& writer_;
  Executor& executor_;
  TensorEncoder encoder_;
  Progress& progress_;
  uint64_t done_bytes_;
  EncodingErrors errors_;
  std::vector<float> norms_;  // of the experts of all layers until now
};

}  // namespace

absl::Status CheckFreeSpace(const std::string& path, uint64_t file_bytes) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  struct statvfs info;
  if (statvfs(folder.c_str(), &info) != 0) return ErrnoError(errno, "cannot examine folder ", folder);
  const uint64_t free_bytes = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  struct stat partial;
  const uint64_t taken_bytes =
      stat((path + ".partial").c_str(), &partial) == 0 ? static_cast<uint64_t>(partial.st_blocks) * 512 : 0;
  if (file_bytes <= free_bytes + taken_bytes) return absl::OkStatus();
  return ResourceExhausted("not enough room in ", folder, ": the store needs ", Grouped(file_bytes), " bytes (",
                           FormatBytes(file_bytes), "), free are ", Grouped(free_bytes + taken_bytes), " (",
                           FormatBytes(free_bytes + taken_bytes), ")");
}

absl::StatusOr<EncodingErrors> Pack(const PackPlan& plan, StoreWriter& writer, Executor& executor, Progress& progress,
                                    const ExpertMoments* moments) {
  Packer packer(plan, writer, executor, progress, moments);
  const absl::Status status = packer.Run();
  if (absl::IsCancelled(status)) MOED_RETURN_IF_ERROR(writer.Flush());
  MOED_RETURN_IF_ERROR(status);
  return packer.errors();
}

}  // namespace moed
