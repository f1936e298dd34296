#include "core/tokenizer/vocabulary.h"

#include <xxhash.h>

#include "core/base/status.h"
#include "core/tokenizer/tokenizer_spec.h"

namespace moed {
namespace {

constexpr size_t kMergeSlotWords = 3;

// Room for a third more than there are entries: probes stay short, and at least one slot is free.
size_t SlotsFor(size_t entries) { return entries + entries / 3 + 1; }

size_t Home(uint64_t hash, size_t slots) { return static_cast<size_t>((hash >> 32) * slots >> 32); }

size_t PieceHome(std::string_view bytes, size_t slots) { return Home(XXH3_64bits(bytes.data(), bytes.size()), slots); }

size_t MergeHome(uint32_t left, uint32_t right, size_t slots) {
  uint64_t hash = (uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 29;
  return Home(hash * 0xBF58476D1CE4E5B9u, slots);
}

void AppendWords(const std::vector<uint32_t>& words, std::string& out) {
  out.append(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(uint32_t));
}

bool HasFreeSlot(const U32Array& slots, size_t words_per_slot) {
  for (size_t i = 0; i + words_per_slot <= slots.size(); i += words_per_slot) {
    if (slots[i] == kNoPiece) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<Vocabulary> Vocabulary::Open(const PerBlobSection<std::string_view>& sections) {
  const auto section = [&](BlobSection which) { return sections[static_cast<size_t>(which)]; };
  for (const BlobSection which :
       {BlobSection::kPieceOffsets, BlobSection::kPieceSlots, BlobSection::kMergeSlots, BlobSection::kMergeResults}) {
    if (section(which).size() % sizeof(uint32_t) != 0)
      return DataLoss("compiled tokenizer: a table of the vocabulary is cut off");
  }
  Vocabulary vocabulary;
  vocabulary.offsets_ = U32Array(section(BlobSection::kPieceOffsets));
  vocabulary.bytes_ = section(BlobSection::kPieceBytes);
  vocabulary.piece_slots_ = U32Array(section(BlobSection::kPieceSlots));
  vocabulary.merge_slots_ = U32Array(section(BlobSection::kMergeSlots));
  vocabulary.merge_results_ = U32Array(section(BlobSection::kMergeResults));
  const U32Array &offsets = vocabulary.offsets_, &merges = vocabulary.merge_slots_;

  if (offsets.size() < 2 || offsets[0] != 0 || offsets[offsets.size() - 1] != vocabulary.bytes_.size()) {
    return DataLoss("compiled tokenizer: the offsets of the pieces do not cover them");
  }
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) return DataLoss("compiled tokenizer: the offsets of the pieces are not ascending");
  }
  const auto known = [&](uint32_t id) { return id < vocabulary.size(); };
  bool sound =
      HasFreeSlot(vocabulary.piece_slots_, 1) && HasFreeSlot(merges, kMergeSlotWords) && merges.size() % kMergeSlotWords == 0;
  for (size_t i = 0; i < vocabulary.piece_slots_.size(); ++i) {
    sound &= vocabulary.piece_slots_[i] == kNoPiece || known(vocabulary.piece_slots_[i]);
  }
  for (size_t i = 0; i < vocabulary.merge_results_.size(); ++i) sound &= known(vocabulary.merge_results_[i]);
  for (size_t i = 0; i + kMergeSlotWords <= merges.size(); i += kMergeSlotWords) {
    sound &=
        merges[i] == kNoPiece || (known(merges[i]) && known(merges[i + 1]) && merges[i + 2] < vocabulary.merge_results_.size());
  }
  if (!sound) return DataLoss("compiled tokenizer: a table of the vocabulary is damaged");
  return vocabulary;
}

std::optional<uint32_t> Vocabulary::Find(std::string_view bytes) const {
  const size_t slots = piece_slots_.size();
  for (size_t slot = PieceHome(bytes, slots);; slot = slot + 1 == slots ? 0 : slot + 1) {
    const uint32_t id = piece_slots_[slot];
    if (id == kNoPiece) return std::nullopt;
    if (piece(id) == bytes) return id;
  }
}

std::optional<Merge> Vocabulary::FindMerge(uint32_t left, uint32_t right) const {
  const size_t slots = merge_slots_.size() / kMergeSlotWords;
  for (size_t slot = MergeHome(left, right, slots);; slot = slot + 1 == slots ? 0 : slot + 1) {
    const size_t word = slot * kMergeSlotWords;
    if (merge_slots_[word] == kNoPiece) return std::nullopt;
    if (merge_slots_[word] == left && merge_slots_[word + 1] == right) {
      const uint32_t rank = merge_slots_[word + 2];
      return Merge{rank, merge_results_[rank]};
    }
  }
}

void BuildVocabulary(const std::vector<std::string>& pieces, const std::vector<uint32_t>& found,
                     const std::vector<MergeRule>& merges, PerBlobSection<std::string>& sections) {
  const auto section = [&](BlobSection which) -> std::string& { return sections[static_cast<size_t>(which)]; };

  std::vector<uint32_t> offsets = {0};
  std::string& bytes = section(BlobSection::kPieceBytes);
  for (const std::string& piece : pieces) {
    bytes += piece;
    offsets.push_back(static_cast<uint32_t>(bytes.size()));
  }
  AppendWords(offsets, section(BlobSection::kPieceOffsets));

  std::vector<uint32_t> piece_slots(SlotsFor(found.size()), kNoPiece);
  for (const uint32_t id : found) {
    size_t slot = PieceHome(pieces[id], piece_slots.size());
    while (piece_slots[slot] != kNoPiece) slot = (slot + 1) % piece_slots.size();
    piece_slots[slot] = id;
  }
  AppendWords(piece_slots, section(BlobSection::kPieceSlots));

  const size_t slots = SlotsFor(merges.size());
  std::vector<uint32_t> merge_slots(slots * kMergeSlotWords, kNoPiece), results;
  for (const MergeRule& merge : merges) {
    size_t slot = MergeHome(merge.left, merge.right, slots);
    const auto words = [&] { return &merge_slots[slot * kMergeSlotWords]; };
    while (words()[0] != kNoPiece && (words()[0] != merge.left || words()[1] != merge.right)) slot = (slot + 1) % slots;
    words()[0] = merge.left;
    words()[1] = merge.right;
    words()[2] = static_cast<uint32_t>(results.size());
    results.push_back(merge.id);
  }
  AppendWords(merge_slots, section(BlobSection::kMergeSlots));
  AppendWords(results, section(BlobSection::kMergeResults));
}

}  // namespace moed
