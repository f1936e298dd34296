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
#include "tools/pack/norms_of_experts.h"
#include "tools/terminal/amount.h"
#include "tools/terminal/interrupt.h"

namespace moed {
namespace {

constexpr int kNormsAtOnce = 4;  // experts a thread, between two looks at interrupts

class Packer {
 public:
  Packer(const PackPlan& plan, StoreWriter& writer, Executor& executor, Progress& progress)
      : plan_(plan),
        writer_(writer),
        executor_(executor),
        encoder_(executor),
        progress_(progress),
        done_bytes_(writer.resumed_bytes()) {}

  absl::Status Run() {
    for (size_t i = 0; i < plan_.trunk.size(); ++i) {
      if (!writer_.HasTensor(i) && plan_.description.trunk[i].name != kExpertNorms) MOED_RETURN_IF_ERROR(PackTensor(i));
    }
    const StoreDescription& description = plan_.description;
    for (size_t layer = 0; layer < description.moe_layers.size(); ++layer) {
      for (int expert = 0; expert < description.experts_per_layer; ++expert) {
        for (int p = 0; p < kExpertParts; ++p) MOED_RETURN_IF_ERROR(PackExpertPart(layer, expert, static_cast<ExpertPart>(p)));
      }
    }
    for (size_t i = 0; i < plan_.trunk.size(); ++i) {
      if (!writer_.HasTensor(i)) MOED_RETURN_IF_ERROR(PackExpertNorms(i));
    }
    return writer_.Finish();
  }

 private:
  absl::Status PackTensor(size_t index) {
    const TensorInfo& tensor = plan_.description.trunk[index];
    const auto append = [&](size_t, std::span<const std::byte> bytes) {
      MOED_RETURN_IF_ERROR(writer_.AppendTensor(index, bytes));
      return Advance(bytes.size());
    };
    const SourceTensor* source = plan_.trunk[index];
    if (source == nullptr) {
      const std::vector<float> frequencies = InverseFrequencies(plan_.spec.rope_theta, plan_.spec.head_dim, plan_.spec.yarn);
      return append(0, std::as_bytes(std::span(frequencies)));
    }
    if (tensor.vector) return encoder_.EncodeVector(*source, append);
    return encoder_.EncodeMatrix(*source, std::span(&plan_.trunk_targets[index], 1), append);
  }

  // At every precision that is not there yet.
  absl::Status PackExpertPart(size_t moe_layer, int expert, ExpertPart part) {
    std::vector<CachedKey> keys;
    std::vector<MatrixTarget> targets;
    for (size_t p = 0; p < plan_.description.precisions.size(); ++p) {
      const CachedKey key{plan_.description.moe_layers[moe_layer], expert, static_cast<Precision>(p)};
      if (writer_.HasExpert(key, part)) continue;
      keys.push_back(key);
      targets.push_back(plan_.expert_targets[p][moe_layer][static_cast<size_t>(part)]);
    }
    if (keys.empty()) return absl::OkStatus();
    const auto append = [&](size_t index, std::span<const std::byte> bytes) {
      MOED_RETURN_IF_ERROR(writer_.AppendExpert(keys[index], part, bytes));
      return Advance(bytes.size());
    };
    return encoder_.EncodeMatrix(plan_.ExpertSource(moe_layer, expert, part), targets, append);
  }

  // Of the experts as they were written, whenever that was: nothing has to be kept of a pack that is taken up again.
  absl::Status PackExpertNorms(size_t index) {
    std::vector<float> norms(static_cast<size_t>(plan_.description.trunk[index].cols));
    const int count = static_cast<int>(norms.size()), batch = executor_.threads() * kNormsAtOnce;
    for (int first = 0; first < count; first += batch) {
      std::vector<absl::Status> statuses(static_cast<size_t>(std::min(batch, count - first)));
      executor_.ParallelFor(static_cast<int>(statuses.size()), 1, [&](int begin, int end) {
        for (int i = begin; i < end; ++i) statuses[i] = NormOf(first + i, norms[first + i]);
      });
      for (const absl::Status& status : statuses) MOED_RETURN_IF_ERROR(status);
      if (Interrupted()) return absl::CancelledError("interrupted");
    }
    MOED_RETURN_IF_ERROR(writer_.AppendTensor(index, std::as_bytes(std::span(norms))));
    return Advance(norms.size() * sizeof(float));
  }

  // `expert` counts through all layers.
  absl::Status NormOf(int expert, float& norm) const {
    const StoreDescription& description = plan_.description;
    const CachedKey key{description.moe_layers[expert / description.experts_per_layer], expert % description.experts_per_layer,
                        kReferencePrecision};
    const ExpertLayout& layout = description.precisions[kReferencePrecision].layers[expert / description.experts_per_layer];
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
  StoreWriter& writer_;
  Executor& executor_;
  TensorEncoder encoder_;
  Progress& progress_;
  uint64_t done_bytes_;
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

absl::Status Pack(const PackPlan& plan, StoreWriter& writer, Executor& executor, Progress& progress) {
  absl::Status status = Packer(plan, writer, executor, progress).Run();
  if (absl::IsCancelled(status)) MOED_RETURN_IF_ERROR(writer.Flush());
  return status;
}

}  // namespace moed
