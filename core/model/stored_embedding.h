// The embedding where its table stays in the store: a token needs one row of it, while a head, its equal in size, is read whole.
// Panels of rows are read as tokens want them; those that were wanted last stay in memory. The bits are those of a table in
// memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "core/kernels/backend.h"
#include "core/model/model.h"
#include "core/store/description.h"
#include "core/store/matrix_panels.h"

namespace moed {

// Bytes in memory, by who touches them.
struct EmbeddingMemory {
  uint64_t working = 0;  // rows that are kept: the backend's
  uint64_t host = 0;     // what is on its way, and what is known of the table
};

// Engine thread only, but for stats.
class StoredEmbedding {
 public:
  // What it holds in place of MatrixPanels::PagesOf the table.
  static EmbeddingMemory MemoryOf(const TensorInfo& table);
  // `panels` of `table` were noted whole. The table and the backend outlive it.
  static absl::StatusOr<std::unique_ptr<StoredEmbedding>> Create(MatrixPanels panels, const TensorInfo& table,
                                                                 ComputeBackend& backend);

  // y (tokens, columns): rows of the table, enqueued. `failed(i, error)`: the row of tokens[i] could not be read, or is damaged;
  // it is anything. The backend's error where it was waited for.
  absl::Status Embed(std::span<const TokenId> tokens, float* y, absl::FunctionRef<void(size_t, const absl::Status&)> failed);

  EmbeddingStats stats() const;  // any thread

 private:
  struct Kept {
    int panel = -1;
    uint64_t wanted = 0;  // the round in which it was wanted last
  };

  StoredEmbedding(MatrixPanels panels, const TensorInfo& table, ComputeBackend& backend, Buffer kept_panels, Buffer landing);
  // Where a panel is kept, or will be.
  size_t SlotFor(int panel) const;
  void Keep(size_t slot, const WantedPanel& read);
  // Panels of all `tokens` are kept, and ids_ says where their rows are. At most kTokensAtOnce.
  void Fetch(std::span<const TokenId> tokens, absl::FunctionRef<void(size_t, const absl::Status&)> failed);

  MatrixPanels panels_;
  const TensorInfo& table_;
  ComputeBackend& backend_;
  const Buffer kept_panels_;
  const Buffer landing_;  // pages of panels on their way
  const size_t panel_bytes_;
  std::vector<Kept> kept_;
  std::vector<TokenId> ids_;
  std::vector<WantedPanel> wanted_;
  uint64_t round_ = 0;
  std::atomic<uint64_t> rows_{0}, reads_{0}, read_errors_{0}, damaged_{0}, read_bytes_{0};
};

}  // namespace moed
