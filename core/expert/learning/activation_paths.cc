#include "core/expert/learning/activation_paths.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/store/checksum.h"
#include "core/store/file_write.h"

namespace moed {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is what memory holds");

constexpr std::array<char, 8> kMagic = {'M', 'O', 'E', 'D', 'P', 'A', 'T', 'H'};
constexpr uint32_t kVersion = 1;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ (value + 1)) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

// Never 0, which is no key.
uint64_t KeyOf(int position, PathSource source, std::span<const int32_t> two_before, std::span<const int32_t> before) {
  uint64_t hash = Mix(Mix(0x243F6A8885A308D3u, static_cast<uint64_t>(position)), static_cast<uint64_t>(source));
  for (const int32_t expert : two_before) hash = Mix(hash, static_cast<uint64_t>(expert));
  hash = Mix(hash, 0xFFFFFFFFu);
  for (const int32_t expert : before) hash = Mix(hash, static_cast<uint64_t>(expert));
  return hash == 0 ? 1 : hash;
}

uint64_t PairKey(int position, const int32_t& two_before, const int32_t& before) {
  return KeyOf(position, PathSource::kPairs, {&two_before, 1}, {&before, 1});
}
uint64_t ExpertKeyOf(int position, const int32_t& before) { return KeyOf(position, PathSource::kExperts, {}, {&before, 1}); }

// Adds up what followed several keys.
class Sum {
 public:
  explicit Sum(std::span<float> counts) : counts_(counts) { std::ranges::fill(counts_, 0.f); }
  void Add(const PathTable& table, uint64_t key) {
    const int row = table.Find(key);
    if (row == PathTable::kNoRow) return;
    occurrences_ += table.occurrences(row);
    const std::span<const uint16_t> counts = table.counts(row);
    for (size_t e = 0; e < counts_.size(); ++e) counts_[e] += counts[e];
  }
  // False when no key was there.
  bool ToProbabilities() {
    if (occurrences_ == 0) return false;
    for (float& count : counts_) count /= static_cast<float>(occurrences_);
    return true;
  }

 private:
  const std::span<float> counts_;
  uint64_t occurrences_ = 0;
};

}  // namespace

struct ActivationPaths::Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t reach = 0;
  uint32_t layers = 0;
  uint32_t experts = 0;
  uint64_t model_hash = 0;
  uint64_t path_rows = 0;
  uint64_t part_rows = 0;
};

ActivationPaths::ActivationPaths(int layers, int experts, int reach, size_t max_bytes)
    : ActivationPaths(layers, experts, reach, reach < kReach ? 0 : max_bytes / 4,
                      reach < kReach ? max_bytes : max_bytes - max_bytes / 4) {}

ActivationPaths::ActivationPaths(int layers, int experts, int reach, size_t path_bytes, size_t part_bytes)
    : layers_(layers),
      experts_(experts),
      reach_(reach),
      paths_(experts, path_bytes),
      parts_(experts, part_bytes),
      visits_(static_cast<size_t>(layers)),
      frequency_(static_cast<size_t>(layers) * static_cast<size_t>(experts)) {
  MOED_CHECK(layers > 0 && experts > 0 && reach >= 1 && reach <= kReach);
}

void ActivationPaths::Add(int position, const PathKey& key, std::span<const int32_t> chosen) {
  MOED_CHECK(position >= 0 && position < layers_);
  for (const int32_t expert : chosen) MOED_CHECK(expert >= 0 && expert < experts_);
  const auto layer = static_cast<size_t>(position);
  if (visits_[layer] == std::numeric_limits<uint32_t>::max()) return;
  ++visits_[layer];
  for (const int32_t expert : chosen) ++frequency_[layer * static_cast<size_t>(experts_) + static_cast<size_t>(expert)];
  for (const int32_t& before : key.before) parts_.Count(ExpertKeyOf(position, before), chosen);
  if (reach_ < kReach || key.two_before.empty()) return;
  for (const int32_t& two_before : key.two_before) {
    for (const int32_t& before : key.before) parts_.Count(PairKey(position, two_before, before), chosen);
  }
  paths_.Count(KeyOf(position, PathSource::kPath, key.two_before, key.before), chosen);
}

PathSource ActivationPaths::Estimate(int position, const PathKey& key, std::span<float> probabilities) const {
  MOED_CHECK(position >= 0 && position < layers_ && probabilities.size() == static_cast<size_t>(experts_));
  if (reach_ == kReach && !key.two_before.empty()) {
    Sum path(probabilities);
    path.Add(paths_, KeyOf(position, PathSource::kPath, key.two_before, key.before));
    if (path.ToProbabilities()) return PathSource::kPath;
    Sum pairs(probabilities);
    for (const int32_t& two_before : key.two_before) {
      for (const int32_t& before : key.before) pairs.Add(parts_, PairKey(position, two_before, before));
    }
    if (pairs.ToProbabilities()) return PathSource::kPairs;
  }
  Sum singles(probabilities);
  for (const int32_t& before : key.before) singles.Add(parts_, ExpertKeyOf(position, before));
  if (singles.ToProbabilities()) return PathSource::kExperts;
  const float visits = static_cast<float>(std::max(visits_[static_cast<size_t>(position)], 1u));
  const std::span<const uint32_t> frequency = Frequency(position);
  for (size_t e = 0; e < frequency.size(); ++e) probabilities[e] = static_cast<float>(frequency[e]) / visits;
  return PathSource::kFrequency;
}

template <class T>
auto BytesOf(std::span<T> values) {
  if constexpr (std::is_const_v<T>) {
    return std::as_bytes(values);
  } else {
    return std::as_writable_bytes(values);
  }
}

// The parts of the file after its header, in order, as bytes to read or to write.
template <class Self, class Visit>
void ActivationPaths::ForContents(Self& self, Visit&& visit) {
  visit(BytesOf(std::span(self.visits_)));
  visit(BytesOf(std::span(self.frequency_)));
  for (auto* table : {&self.paths_, &self.parts_}) {
    visit(BytesOf(table->raw_keys()));
    visit(BytesOf(table->raw_counts()));
  }
}

absl::Status ActivationPaths::Write(const std::string& path, uint64_t model_hash) const {
  const Header header{.reach = static_cast<uint32_t>(reach_),
                      .layers = static_cast<uint32_t>(layers_),
                      .experts = static_cast<uint32_t>(experts_),
                      .model_hash = model_hash,
                      .path_rows = paths_.rows(),
                      .part_rows = parts_.rows()};
  return ReplaceFile(path, [&](int fd, const std::string& partial) {
    ChecksumStream checksum;
    uint64_t offset = 0;
    absl::Status status;
    const auto append = [&](std::span<const std::byte> bytes) {
      checksum.Update(bytes);
      if (status.ok()) status = WriteAt(fd, partial, offset, bytes);
      offset += bytes.size();
    };
    append(std::as_bytes(std::span(&header, 1)));
    ForContents(*this, append);
    const uint64_t sum = checksum.Value();
    append(std::as_bytes(std::span(&sum, 1)));
    return status;
  });
}

absl::StatusOr<std::unique_ptr<ActivationPaths>> ActivationPaths::Read(const std::string& path, uint64_t model_hash, int layers,
                                                                       int experts) {
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, OpenBuffered(path));
  Header header;
  if (file->size() < sizeof(header)) return DataLoss(path, " is no dictionary of activation paths: ", file->size(), " bytes");
  MOED_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(&header, 1))));
  if (header.magic != kMagic) return DataLoss(path, " is no dictionary of activation paths");
  if (header.version != kVersion) {
    return FailedPrecondition(path, ": dictionary of version ", header.version, ", expected ", kVersion, "; make it again");
  }
  if (header.model_hash != model_hash) {
    return FailedPrecondition(path, ": dictionary of another model (hash ", absl::Hex(header.model_hash), ", the store's is ",
                              absl::Hex(model_hash), "); make one from this store");
  }
  const auto is_table = [&](uint64_t rows) { return rows > 0 && rows % PathTable::kWays == 0 && rows <= file->size(); };
  if (header.layers != static_cast<uint32_t>(layers) || header.experts != static_cast<uint32_t>(experts) || header.reach < 1 ||
      header.reach > kReach || !is_table(header.path_rows) || !is_table(header.part_rows)) {
    return DataLoss(path, ": its header contradicts the model: ", header.layers, " layers of ", header.experts,
                    " experts, reach ", header.reach, ", ", header.path_rows, " and ", header.part_rows, " rows");
  }
  const uint64_t row_bytes = PathTable::RowBytes(experts);
  const uint64_t expected = sizeof(header) + (uint64_t{header.layers} * (header.experts + 1)) * sizeof(uint32_t) +
                            (header.path_rows + header.part_rows) * row_bytes + sizeof(uint64_t);
  if (file->size() != expected) {
    return DataLoss(path, ": ", file->size(), " bytes, expected ", expected, ": truncated or not whole");
  }
  // Not make_unique: the constructor is private.
  std::unique_ptr<ActivationPaths> paths(new ActivationPaths(layers, experts, static_cast<int>(header.reach),
                                                             header.path_rows * row_bytes, header.part_rows * row_bytes));
  ChecksumStream checksum;
  checksum.Update(std::as_bytes(std::span(&header, 1)));
  uint64_t offset = sizeof(header);
  absl::Status status;
  ForContents(*paths, [&](std::span<std::byte> bytes) {
    if (status.ok()) status = file->ReadAt(offset, bytes);
    checksum.Update(bytes);
    offset += bytes.size();
  });
  uint64_t sum = 0;
  if (status.ok()) status = file->ReadAt(offset, std::as_writable_bytes(std::span(&sum, 1)));
  MOED_RETURN_IF_ERROR(status);
  if (sum != checksum.Value()) return DataLoss(path, ": wrong checksum, the file is damaged");
  if (const absl::Status sane = paths->Check(); !sane.ok()) return DataLoss(path, ": ", std::string(sane.message()));
  return paths;
}

absl::Status ActivationPaths::Check() const {
  for (int position = 0; position < layers_; ++position) {
    const uint32_t visits = visits_[static_cast<size_t>(position)];
    if (const uint32_t most = std::ranges::max(Frequency(position)); most > visits) {
      return DataLoss("MoE layer ", position, " was seen ", visits, " times and one of its experts ", most, " times");
    }
  }
  MOED_RETURN_IF_ERROR(paths_.Check());
  return parts_.Check();
}

// Tokens keep their order from layer to layer; some may have left the step.
void TokenPaths::Advance(int position, const LayerRouting& routing,
                         absl::FunctionRef<void(const TokenRouting&, const PathKey&, const ExpertSet&)> visit) {
  std::swap(rows_, earlier_);
  if (position == 0 || position != position_ + 1) earlier_.clear();
  position_ = position;
  rows_.clear();
  size_t at = 0;
  for (const TokenRouting& token : routing.tokens) {
    Row row{token.sequence, token.token, token.phase, {}};
    size_t same = at;
    while (same < earlier_.size() && (earlier_[same].sequence != token.sequence || earlier_[same].token != token.token)) ++same;
    if (same < earlier_.size()) {
      row.next = std::move(earlier_[same].next);
      at = same + 1;
    }
    ExpertSet chosen;
    for (const ExpertChoice& choice : token.choices) chosen.push_back(choice.expert);
    std::ranges::sort(chosen);
    visit(token, row.next, chosen);
    row.next.two_before = std::move(row.next.before);
    row.next.before = std::move(chosen);
    rows_.push_back(std::move(row));
  }
}

}  // namespace moed
