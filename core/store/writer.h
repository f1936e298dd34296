// Writes a store so that it exists whole or not at all, and so that a killed write can be taken up again.
//
// Everything goes to PATH.partial, pieces in any order, the header last: data, fsync, header, fsync, rename to PATH, fsync of the
// folder. PATH.partial.journal names the pieces that are safely on disk; a later writer with the same description and identity
// needs to write only the others.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/store/checksum.h"
#include "core/store/coding.h"
#include "core/store/description.h"
#include "core/store/journal.h"
#include "core/store/layout.h"

namespace moed {

struct StoreWriterOptions {
  uint64_t identity = 0;                     // of everything that decides the bytes beside the description (inputs, encoder)
  uint64_t sync_bytes = 64ull << 20;         // finished pieces are synced and journalled after so many bytes ...
  double sync_seconds = 1.0;                 // ... or so much time, whichever comes first
  int least_coding_gain = kUsualCodingGain;  // of coded records, percent of a segment's pages (coding.h)
  const Clock* clock = &Clock::Real();
};

// Not synchronised. Destruction without Finish leaves PATH.partial for the next writer; Flush first keeps what is not journalled
// yet.
class StoreWriter {
 public:
  enum class Start {
    kFresh,      // there was no unfinished pack
    kResumed,    // finished pieces of an unfinished pack are kept
    kRestarted,  // an unfinished pack of other inputs, options or version was thrown away
  };

  // `description` complete: laid out (layout.h), tokenizer included. FAILED_PRECONDITION when another writer is at work on
  // `path`; RESOURCE_EXHAUSTED when the disk has no room for the whole file: what is finished stays for a later writer.
  static absl::StatusOr<std::unique_ptr<StoreWriter>> Open(const std::string& path, const StoreDescription& description,
                                                           const StoreWriterOptions& options);
  ~StoreWriter();
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;

  Start start() const { return start_; }
  uint64_t resumed_bytes() const { return resumed_bytes_; }
  const FileLayout& layout() const { return layout_; }

  // Whole already; must not be written again.
  bool HasTensor(size_t tensor) const { return finished_[layout_.TensorPiece(tensor)]; }
  bool HasExpert(const CachedKey& key, ExpertPart part) const { return finished_[layout_.ExpertPiece(key, part)]; }
  // The next bytes of a trunk tensor or an expert's segment, whole or in as many calls as wanted; pieces may be interleaved. Of
  // coded records (description.coded(), MarkCoded) a segment is held in memory until it is whole and those before it in the file
  // are: it costs least to write experts in their order, each at every precision.
  absl::Status AppendTensor(size_t tensor, std::span<const std::byte> bytes) {
    return Append(layout_.TensorPiece(tensor), bytes);
  }
  absl::Status AppendExpert(const CachedKey& key, ExpertPart part, std::span<const std::byte> bytes) {
    return Append(layout_.ExpertPiece(key, part), bytes);
  }
  // The bytes of a segment that is whole already, as many as it has. DATA_LOSS when they are not what was written.
  absl::Status ReadBack(const CachedKey& key, ExpertPart part, std::span<std::byte> out) const;
  // Syncs and journals what is finished.
  absl::Status Flush();
  // Every piece finished. Afterwards PATH opens, and the partial file and the journal are gone.
  absl::Status Finish();
  // Removes the partial file and the journal: the inputs can never become a store. Nothing may follow.
  absl::Status Discard();

 private:
  struct OpenPiece {
    uint64_t written = 0;
    std::vector<std::byte> plain;  // of a segment that is to be coded
    ChecksumStream checksum;
  };

  StoreWriter(std::string path, StoreDescription description, FileLayout layout, const StoreWriterOptions& options);
  absl::Status Lock();
  absl::Status ResumeOrStart();
  absl::Status StartClean();
  absl::StatusOr<std::vector<JournalEntry>> TakeUp();
  uint64_t Identity() const;
  // Room for the whole file, which is written up to `end`; that much of it stays where there is none.
  absl::Status Reserve(uint64_t end);
  absl::Status Append(size_t piece, std::span<const std::byte> bytes);
  absl::Status Write(uint64_t offset, std::span<const std::byte> bytes);
  bool IsCoded(size_t piece) const { return layout_.coded() && piece > layout_.TokenizerPiece(); }
  void Finished(size_t piece, uint64_t checksum);
  // Coded segments follow each other in the file: one that comes before those in front of it waits in memory.
  absl::Status WriteCoded();
  absl::Status EndCoded();
  absl::StatusOr<std::vector<JournalEntry>> TakeUpCoded(const std::vector<JournalEntry>& entries, uint64_t found_bytes);

  const std::string path_;
  const std::string partial_path_;
  const std::string journal_path_;
  StoreDescription description_;
  FileLayout layout_;  // of coded records: as far as they are written
  const StoreWriterOptions options_;
  const uint64_t identity_;
  int fd_ = -1;
  Start start_ = Start::kFresh;
  uint64_t resumed_bytes_ = 0;
  std::unique_ptr<Journal> journal_;
  std::vector<bool> finished_;       // by piece
  std::vector<uint64_t> checksums_;  // by piece, of finished ones
  absl::flat_hash_map<size_t, OpenPiece> open_;
  struct WaitingSegment {
    std::vector<std::byte> bytes;
    uint64_t checksum = 0;
  };
  std::map<size_t, WaitingSegment> waiting_;  // by rank
  size_t next_rank_ = 0;                      // of coded segments
  std::vector<JournalEntry> unsynced_;
  uint64_t unsynced_bytes_ = 0;
  int64_t last_sync_nanos_ = 0;
};

}  // namespace moed
