#include "core/model/stored_embedding.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/status.h"
#include "core/quant/format.h"
#include "core/store/damage.h"

namespace moed {
namespace {

constexpr int kKeptPanels = 256;
constexpr size_t kTokensAtOnce = 32;

size_t KeptPanels(const TensorInfo& table) { return static_cast<size_t>(std::min(kKeptPanels, Panels(table.rows))); }

size_t KeptBytes(const TensorInfo& table) { return RoundUp(KeptPanels(table) * MatrixPanels::PanelBytes(table), kPageBytes); }

}  // namespace

EmbeddingMemory StoredEmbedding::MemoryOf(const TensorInfo& table) {
  return {.working = KeptBytes(table),
          .host = kTokensAtOnce * MatrixPanels::LandingBytes(table) + MatrixPanels::MemoryBytes(table) +
                  KeptPanels(table) * sizeof(Kept) + kTokensAtOnce * (sizeof(TokenId) + sizeof(WantedPanel)) +
                  sizeof(StoredEmbedding)};
}

absl::StatusOr<std::unique_ptr<StoredEmbedding>> StoredEmbedding::Create(MatrixPanels panels, const TensorInfo& table,
                                                                         ComputeBackend& backend) {
  BackendMemory& memory = backend.memory();
  MOED_ASSIGN_OR_RETURN(Buffer kept, memory.working().Allocate(KeptBytes(table)));
  MOED_ASSIGN_OR_RETURN(Buffer landing, memory.shared().Allocate(kTokensAtOnce * MatrixPanels::LandingBytes(table)));
  return std::unique_ptr<StoredEmbedding>(
      new StoredEmbedding(std::move(panels), table, backend, std::move(kept), std::move(landing)));
}

StoredEmbedding::StoredEmbedding(MatrixPanels panels, const TensorInfo& table, ComputeBackend& backend, Buffer kept_panels,
                                 Buffer landing)
    : panels_(std::move(panels)),
      table_(table),
      backend_(backend),
      kept_panels_(std::move(kept_panels)),
      landing_(std::move(landing)),
      panel_bytes_(MatrixPanels::PanelBytes(table)),
      kept_(KeptPanels(table)),
      ids_(kTokensAtOnce),
      wanted_(kTokensAtOnce) {
  const size_t bytes = MatrixPanels::LandingBytes(table);
  for (size_t i = 0; i < kTokensAtOnce; ++i) wanted_[i].pages = landing_.span().subspan(i * bytes, bytes);
}

absl::Status StoredEmbedding::Embed(std::span<const TokenId> tokens, float* y,
                                    absl::FunctionRef<void(size_t, const absl::Status&)> failed) {
  const MatrixView kept = {table_.format, static_cast<int>(kept_.size()) * kPanelRows, table_.cols, kept_panels_.data()};
  for (size_t done = 0; done < tokens.size(); done += kTokensAtOnce) {
    // What is read takes the place of what is still copied.
    if (done > 0) MOED_RETURN_IF_ERROR(backend_.Fence());
    const auto some = tokens.subspan(done, std::min(kTokensAtOnce, tokens.size() - done));
    Fetch(some, [&](size_t i, const absl::Status& error) { failed(done + i, error); });
    backend_.Embed(kept, std::span(ids_).first(some.size()), y + done * static_cast<size_t>(table_.cols));
  }
  rows_.fetch_add(tokens.size(), std::memory_order_relaxed);
  return absl::OkStatus();
}

EmbeddingStats StoredEmbedding::stats() const {
  return {.rows = rows_.load(std::memory_order_relaxed),
          .reads = reads_.load(std::memory_order_relaxed),
          .read_errors = read_errors_.load(std::memory_order_relaxed),
          .damaged = damaged_.load(std::memory_order_relaxed),
          .read_bytes = read_bytes_.load(std::memory_order_relaxed)};
}

// Where more panels are kept than a round has tokens, or all of the table, one that the round wants never makes room.
size_t StoredEmbedding::SlotFor(int panel) const {
  const auto found = std::ranges::find(kept_, panel, &Kept::panel);
  const auto at = found != kept_.end() ? found : std::ranges::min_element(kept_, {}, &Kept::wanted);
  return static_cast<size_t>(at - kept_.begin());
}

void StoredEmbedding::Keep(size_t slot, const WantedPanel& read) {
  reads_.fetch_add(1, std::memory_order_relaxed);
  if (!read.status.ok()) {
    (IsDamage(read.status) ? damaged_ : read_errors_).fetch_add(1, std::memory_order_relaxed);
    kept_[slot] = {};
    return;
  }
  read_bytes_.fetch_add(read.bytes.size(), std::memory_order_relaxed);
  backend_.memory().Copy(kept_panels_.data() + slot * panel_bytes_, read.bytes.data(), panel_bytes_);
}

void StoredEmbedding::Fetch(std::span<const TokenId> tokens, absl::FunctionRef<void(size_t, const absl::Status&)> failed) {
  ++round_;
  std::array<size_t, kTokensAtOnce> slots;  // of what is read
  size_t absent = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int panel = tokens[i].value() / kPanelRows;
    const size_t slot = SlotFor(panel);
    if (kept_[slot].panel != panel) {
      wanted_[absent].panel = panel;
      slots[absent++] = slot;
    }
    kept_[slot] = {panel, round_};
    ids_[i] = TokenId(static_cast<int32_t>(slot) * kPanelRows + tokens[i].value() % kPanelRows);
  }
  if (absent == 0) return;
  panels_.Read(std::span(wanted_).first(absent));
  for (size_t i = 0; i < absent; ++i) {
    Keep(slots[i], wanted_[i]);
    if (wanted_[i].status.ok()) continue;
    for (size_t token = 0; token < tokens.size(); ++token) {
      if (tokens[token].value() / kPanelRows == wanted_[i].panel) failed(token, wanted_[i].status);
    }
  }
}

}  // namespace moed
